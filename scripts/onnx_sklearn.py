"""Hold converted estimators of scikit-learn, LightGBM and XGBoost against ONNX Runtime, and write docs/onnx.md's table.

Usage: ``python scripts/onnx_sklearn.py [PATTERN]``. Without a pattern the document is written. Needs the packages
scikit-learn, skl2onnx, onnxruntime, and onnxmltools with lightgbm and xgboost.
"""

from __future__ import annotations

import re
import sys
import warnings
from ast import literal_eval
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import loadrun
from loadrun.base.errors import LoadRunError

DOCUMENT = Path(__file__).parent.parent / "docs" / "onnx.md"
BEGIN, END = "<!-- estimators: begin -->", "<!-- estimators: end -->"
TOLERANCE = 1e-4
OPSETS = {"": 18, "ai.onnx.ml": 3}
NOTES = {
    "OneClassSVM()": "labels of samples that training left on the margin, with scores of 0 but for rounding"
}
# A class by its module, with parameters; after a comma what it is trained on: binary, text, whole numbers, two targets.
CLASSIFIERS = """
linear_model: LogisticRegression(max_iter=500) LogisticRegression(),binary
linear_model: LogisticRegression(max_iter=500),text
linear_model: SGDClassifier(loss='log_loss',random_state=0) Perceptron() RidgeClassifier()
linear_model: PassiveAggressiveClassifier(random_state=0)
tree: DecisionTreeClassifier(random_state=0) DecisionTreeClassifier(random_state=0),binary
tree: DecisionTreeClassifier(random_state=0),text ExtraTreeClassifier(random_state=0)
ensemble: RandomForestClassifier(n_estimators=30,random_state=0)
ensemble: RandomForestClassifier(n_estimators=30,random_state=0),binary
ensemble: ExtraTreesClassifier(n_estimators=30,random_state=0)
ensemble: GradientBoostingClassifier(n_estimators=20,random_state=0)
ensemble: GradientBoostingClassifier(n_estimators=20,random_state=0),binary
ensemble: HistGradientBoostingClassifier(max_iter=20) HistGradientBoostingClassifier(max_iter=20),binary
ensemble: AdaBoostClassifier(n_estimators=10,random_state=0) BaggingClassifier(n_estimators=5,random_state=0)
svm: SVC() SVC(probability=True,random_state=0) SVC(probability=True,random_state=0),binary LinearSVC() NuSVC()
neighbors: KNeighborsClassifier() RadiusNeighborsClassifier(radius=5.0)
naive_bayes: GaussianNB() BernoulliNB() MultinomialNB() ComplementNB() CategoricalNB(),whole
neural_network: MLPClassifier(hidden_layer_sizes=8,max_iter=300,random_state=0)
discriminant_analysis: LinearDiscriminantAnalysis() QuadraticDiscriminantAnalysis()
"""
REGRESSORS = """
linear_model: LinearRegression() Ridge() Lasso() ElasticNet() BayesianRidge() HuberRegressor() Lars()
linear_model: SGDRegressor(random_state=0) PoissonRegressor() TweedieRegressor() QuantileRegressor()
linear_model: RANSACRegressor(random_state=0)
tree: DecisionTreeRegressor(random_state=0)
ensemble: RandomForestRegressor(n_estimators=30,random_state=0) RandomForestRegressor(random_state=0),two
ensemble: ExtraTreesRegressor(n_estimators=30,random_state=0) GradientBoostingRegressor(random_state=0)
ensemble: HistGradientBoostingRegressor(max_iter=20) AdaBoostRegressor(n_estimators=10,random_state=0)
ensemble: BaggingRegressor(n_estimators=5,random_state=0)
svm: SVR() NuSVR() LinearSVR()
neighbors: KNeighborsRegressor()
neural_network: MLPRegressor(hidden_layer_sizes=8,max_iter=300,random_state=0)
gaussian_process: GaussianProcessRegressor(alpha=1.0)
cross_decomposition: PLSRegression()
"""
TRANSFORMERS = """
preprocessing: StandardScaler() MinMaxScaler() MaxAbsScaler() RobustScaler() Normalizer() Binarizer(threshold=2.0)
preprocessing: PolynomialFeatures() PowerTransformer() QuantileTransformer(n_quantiles=20) SplineTransformer()
preprocessing: KBinsDiscretizer(n_bins=4,encode='ordinal') OneHotEncoder(),whole OrdinalEncoder(),whole
impute: SimpleImputer() KNNImputer()
decomposition: PCA(n_components=2) IncrementalPCA(n_components=2) TruncatedSVD() KernelPCA(n_components=2,kernel='rbf')
decomposition: FastICA(n_components=2,random_state=0)
cluster: KMeans(n_clusters=3,random_state=0) MiniBatchKMeans(n_clusters=3,random_state=0)
mixture: GaussianMixture(n_components=2,random_state=0)
ensemble: IsolationForest(n_estimators=20,random_state=0)
svm: OneClassSVM()
neighbors: LocalOutlierFactor(novelty=True)
feature_selection: VarianceThreshold(threshold=0.3) SelectKBest(k=2)
random_projection: GaussianRandomProjection(n_components=2,random_state=0)
"""
BOOSTED = """
lightgbm: LGBMClassifier(n_estimators=20,verbose=-1) LGBMClassifier(n_estimators=20,verbose=-1),binary
lightgbm: LGBMRegressor(n_estimators=20,verbose=-1) LGBMRegressor(n_estimators=20,verbose=-1,objective='poisson')
xgboost: XGBClassifier(n_estimators=20,max_depth=4) XGBClassifier(n_estimators=20,max_depth=4),binary
xgboost: XGBRegressor(n_estimators=20,max_depth=4) XGBRFRegressor(n_estimators=20,max_depth=4)
"""


def estimators(table: str) -> Iterator[tuple[str, Any, str]]:
    """Names, estimators and what they are trained on."""
    for line in table.strip().splitlines():
        module, rest = line.split(": ", 1)
        for name, given, kind in re.findall(r"(\w+)\(([^)]*)\)(?:,(\w+))?", rest):
            pairs = dict(p.split("=") for p in given.split(",") if p)
            parameters = {k: literal_eval(v) for k, v in pairs.items()}
            whole = module if module in ("lightgbm", "xgboost") else f"sklearn.{module}"
            yield (
                f"{name}({given})" + (f", {kind}" if kind else ""),
                _estimator(whole, name, parameters),
                kind,
            )


def _estimator(module: str, name: str, parameters: dict[str, Any]) -> Any:
    return getattr(import_module(module), name)(**parameters)


def data(group: str, kind: str) -> tuple[Any, Any]:
    """What an estimator is trained on."""
    from sklearn import datasets

    if group == "regressor":
        x, y = datasets.load_diabetes(return_X_y=True)
        return (x * 10).astype(np.float32), np.c_[y, 2 * y] if kind == "two" else y
    x, y = datasets.load_iris(return_X_y=True)
    y = {"binary": (y > 0).astype(int), "text": np.array(["setosa", "versicolor", "virginica"])[y]}.get(
        kind, y
    )
    return (np.round(x).astype(np.int64) if kind == "whole" else x.astype(np.float32)), y


def converted(model: Any, x: Any) -> bytes:
    """The estimator as an ONNX file; a classifier gives its scores as a tensor where the converter can."""
    module = type(model).__module__.split(".")[0]
    if module != "sklearn":
        import onnxmltools
        from onnxmltools.convert.common.data_types import FloatTensorType

        convert = getattr(onnxmltools, f"convert_{module}")
        made = convert(model, initial_types=[("X", FloatTensorType([None, x.shape[1]]))])
        return bytes(made.SerializeToString())
    from skl2onnx import to_onnx
    from skl2onnx.common import _container

    # skl2onnx 1.20 gives lists of numpy's booleans and integers, which onnx 1.23 does not take.
    _container.make_node = _with_whole_numbers

    try:
        made = to_onnx(model, x[:1], target_opset=OPSETS, options={id(model): {"zipmap": False}})
    except NameError:
        made = to_onnx(model, x[:1], target_opset=OPSETS)
    return bytes(made.SerializeToString())


def _with_whole_numbers(op: str, inputs: Any, outputs: Any, **attributes: Any) -> Any:
    from onnx.helper import make_node

    def whole(value: Any) -> Any:
        flags = isinstance(value, list) and value and isinstance(value[0], (bool, np.bool_, np.integer))
        return [int(v) for v in value] if flags else value

    return make_node(op, inputs, outputs, **{n: whole(v) for n, v in attributes.items()})


def compared(file: bytes, x: Any) -> str:
    """How far loadrun's outputs are from ONNX Runtime's, in words; empty where they agree."""
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (feed,) = session.get_inputs()
    outputs = [o.name for o in session.get_outputs()]
    want = dict(zip(outputs, session.run(outputs, {feed.name: x}), strict=True))
    (result,) = loadrun.run(loadrun.load(file), {feed.name: x.astype(np.int32) if x.dtype.kind == "i" else x})
    if result.message:
        raise LoadRunError(result.message)
    for output in result.outputs:
        expected, got = want[output.name], np.asarray(output.value)
        if isinstance(expected, list):
            expected = np.array([[row[k] for k in sorted(row)] for row in expected])
        if got.shape != expected.shape:
            return f"{output.name} has the shape {got.shape}, expected {expected.shape}"
        off = np.abs(got - expected) / np.maximum(1, np.abs(expected))
        if not np.nanmax(off) <= TOLERANCE or (np.isnan(got) != np.isnan(expected)).any():
            return f"{output.name}: {int((off > TOLERANCE).sum())} of {off.size} values differ"
    return ""


def measured(pattern: str) -> Iterator[tuple[str, str, str, str]]:
    """Group, name, what came out and why, of every estimator."""
    for group, table in (
        ("classifier", CLASSIFIERS),
        ("regressor", REGRESSORS),
        ("transformer", TRANSFORMERS),
        ("boosted", BOOSTED),
    ):
        for name, model, kind in estimators(table):
            if not re.search(pattern, name):
                continue
            x, y = data("regressor" if "Regressor" in name and group == "boosted" else group, kind)
            yield group, name, *_attempt(lambda m=model, x=x, y=y: _fitted(m, x, y), x)


def _fitted(model: Any, x: Any, y: Any) -> bytes:
    model.fit(x, y)
    return converted(model, x)


def _attempt(make: Callable[[], bytes], x: Any) -> tuple[str, str]:
    try:
        file = make()
    except Exception as e:
        return "not converted", str(e).split("\n")[0]
    try:
        fault = compared(file, x[::9])
    except LoadRunError as e:
        return "refused", str(e)
    except Exception as e:
        return "not run by ONNX Runtime", str(e).split("\n")[0]
    return ("other values", fault) if fault else ("equal", "")


def section(rows: list[tuple[str, str, str, str]]) -> str:
    """The part of the document."""
    packages = ("scikit-learn", "skl2onnx", "onnxmltools", "lightgbm", "xgboost", "onnxruntime")
    lines = [
        BEGIN,
        "",
        "### Estimators",
        "",
        "Measured with `scripts/onnx_sklearn.py` ("
        + ", ".join(f"{p} {version(p)}" for p in packages)
        + f"): converted, loaded, run, and compared with ONNX Runtime to {TOLERANCE:g}, labels exactly.",
        "",
        "| estimators | equal | other values | refused | not converted | not run by ONNX Runtime |",
        "| --- " * 6 + "|",
    ]
    kinds = ("equal", "other values", "refused", "not converted", "not run by ONNX Runtime")
    titles = {
        "classifier": "classifiers",
        "regressor": "regressors",
        "transformer": "transformers, clusters, outliers",
    }
    for group in dict.fromkeys(g for g, *_ in rows):
        counts = [sum(g == group and k == kind for g, _, k, _ in rows) for kind in kinds]
        lines.append(f"| {titles.get(group, 'LightGBM, XGBoost')} | {' | '.join(map(str, counts))} |")
    for kind in kinds[1:]:
        shown = {n: NOTES.get(n, w) for _, n, _, w in rows}
        found = [f"{n} ({shown[n]})" if kind == "other values" else n for _, n, k, _ in rows if k == kind]
        if found:
            lines += ["", f"{kind[0].upper()}{kind[1:]}: {'; '.join(found)}."]
    return "\n".join([*lines, "", END])


def main() -> int:
    """Measure, and write the document."""
    warnings.simplefilter("ignore")
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    rows = []
    for row in measured(pattern):
        rows.append(row)
        if row[2] != "equal" or pattern:
            print(*row[1:], sep=": ")
    if not pattern:
        document = DOCUMENT.read_text(encoding="utf-8")
        part = section(rows)
        if BEGIN in document:
            document = document[: document.index(BEGIN)] + part + document[document.index(END) + len(END) :]
        else:
            document = document.rstrip("\n") + "\n\n" + part + "\n"
        DOCUMENT.write_text(document, encoding="utf-8")
    return int(any(k == "refused" for _, _, k, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
