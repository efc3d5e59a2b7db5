"""Layers for front ends that are not MegEngine's: its operator wherever it computes the same, else the formula.

Unlike MegEngine's own functions, which record its operators alone, they take inputs of any rank and float dtype:
float16 and bfloat16 are computed in float32 and rounded at the end.
"""
