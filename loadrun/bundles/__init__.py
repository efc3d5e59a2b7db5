"""What a file holds: testcases, the checks of a graph, and the bundle of both; see `loadrun.testcase`."""
