"""The architecture as data: what may import what, held against the source."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = {
    "otel_logger": ROOT / "otel_logger",
    "otel_logger_exporters": ROOT / "exporters" / "otel_logger_exporters",
}

EXPORTERS = [
    {"any_values", "threads"},
    {
        "",
        "answers",
        "backoff",
        "blob_counts",
        "blob_files",
        "blob_meta",
        "blob_names",
        "clock",
        "decoding",
        "entropy",
        "errors",
        "extents",
        "filesystems",
    }
    | {"measurements", "payloads", "records", "signals", "upkeep", "watermarks"},
    {
        "blob_probe",
        "blob_url",
        "certificates",
        "deadline",
        "endpoint_urls",
        "envvars",
        "ledger",
        "owner_record",
        "rejected",
        "responses",
    }
    | {"object_errors", "object_meta"}
    | {"console", "hidden_folder", "resolver", "rows", "scrape_names", "scrape_server", "segments", "space"},
    {"object_options", "private_copy", "proxies", "scrape_address", "scrape_families", "scrape_security", "sockets"},
    {"object_client"},
    {"consignments", "courier", "file_store", "object_claims"},
    {"object_store"},
    {
        "blob_store",
        "detectors",
        "dialler",
        "endpoints",
        "journal_reader",
        "limits",
        "otel_variables",
        "owner_folder",
        "requests",
        "schedules",
        "scrape_page",
        "segment_files",
    },
    {"items", "journal", "owner", "propagators", "routes", "samplers", "scrape_endpoint", "tls"},
    {"failures", "http_pool"},
    {"diagnosis"},
    {"grpc_transport", "http_transport"},
    {"transports"},
    {"lane", "route_transports"},
    {"sender", "encoder", "adoption", "postscript"},
    {"outbox"},
]
"""The layers of otel_logger_exporters: a module imports only from those before its own."""

LOGGER = [
    {"forms", "label_colours", "media_types", "recycled", "table_cells", "table_formats"},
    {"_version", "contract", "findings", "host_arrays", "progress", "readable", "stamps", "table_images", "tabular"}
    | {"table_tensors"}
    | {"lookout", "ranks", "log_hooks", "process_hooks", "termination", "trainer_events", "values"},
    {"conventions", "redaction", "folders", "launcher", "masks", "pixels", "table_copies"},
    {"activity", "exceptions", "heartbeat", "images", "pillow", "png", "posthumous", "tracer"},
    {"label_images", "open_spans", "thumbnails"},
    {
        "cluster",
        "devices",
        "deaths",
        "doctor_network",
        "glossary",
        "hyperparameters",
        "identity",
        "latest",
        "reading",
        "self_metrics",
        "settings",
    }
    | {"galleries", "overlays", "spans", "workbench"},
    {"doctor_door", "overview", "recorder", "resource", "trainer", "vocabulary", "writer_folder", "event_log"}
    | {"span_block", "trace_log", "hyperparameter_events", "hyperparameter_memory", "program_logs"}
    | {"attribute_glossary", "held_images", "pictures", "tables"},
    {"announce", "contents", "delivery", "doctor_connection", "launch", "liveness", "staging", "table_schema"},
    {"hyperparameter_log", "leftovers", "settling", "shelf", "table_jsonl", "table_parquet", "vitals"},
    {"doctor_endpoint", "doctor_folder", "scraping", "syncing", "table_files", "writer"},
    {"adopter", "doctor_scrape", "doctor_store", "places"},
    {"deposits"},
    {"image_deposits", "table_deposits"},
    {"doctor", "session"},
    {"destination"},
    {"composer", "logger"},
    {""},
    {"demo_model", "demo_witness"},
    {"demo_training"},
    {"demo_check", "demo_summary"},
    {"demo", "doctor_command", "runs_command", "show_command", "sync_command"},
    {"cli"},
    {"__main__"},
]
"""The layers of otel_logger, all of which stand on otel_logger_exporters."""

OWNERS = {
    "composer": {"otel_logger.composer"},
    "torch": {"otel_logger.devices"},
    "lightning": set(),
    "transformers": set(),
    "obstore": {"otel_logger_exporters.object_client"},
    "boto3": {"otel_logger_exporters.object_client"},
    "prometheus_client": {"otel_logger_exporters.scrape_page"},
    "grpc": {"otel_logger_exporters.grpc_transport"},
    "urllib3": {"otel_logger_exporters.http_pool", "otel_logger_exporters.http_transport"},
    "PIL": {"otel_logger.pillow"},
    "pyarrow": {"otel_logger.table_parquet"},
    "pandas": set(),
    "random": {"otel_logger_exporters.backoff"},
}
"""The only modules that may import each heavy or optional package, or the global random generator."""

ENVIRONMENT_READERS = {"otel_logger.session", "otel_logger.cli"}
"""The only modules that may touch `os.environ`: it is read once, at construction, or handed on by the command line."""


def modules() -> dict[str, ast.Module]:
    """Return the syntax tree of each module by its name."""
    found = {}
    for package, folder in SOURCES.items():
        for path in folder.glob("*.py"):
            name = package if path.stem == "__init__" else f"{package}.{path.stem}"
            found[name] = ast.parse(path.read_text("utf-8"))
    return found


MODULES = modules()


def is_type_checking(node: ast.AST) -> bool:
    """Tell whether a node is `if TYPE_CHECKING`."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(name: str) -> set[str]:
    """Return the modules that a module imports, also late; what only type checkers see is left out."""
    hidden = {id(inner) for node in ast.walk(MODULES[name]) if is_type_checking(node) for inner in ast.walk(node)}
    found = set()
    for node in ast.walk(MODULES[name]):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & set(MODULES)
            found |= inside or {node.module}
    return found


def layer(name: str) -> int:
    """Return the number of a module's layer."""
    package, _, module = name.partition(".")
    layers = LOGGER if package == "otel_logger" else EXPORTERS
    return next(number for number, names in enumerate(layers) if module in names)


def test_every_module_has_its_layer() -> None:
    """A module that no layer names is a module whose place nobody has thought about."""
    placed = {"otel_logger" + (f".{m}" if m else "") for names in LOGGER for m in names}
    placed |= {"otel_logger_exporters" + (f".{m}" if m else "") for names in EXPORTERS for m in names}

    assert set(MODULES) == placed


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_imports_only_from_layers_before_its_own(name: str) -> None:
    """Imports go one way, and the exporters know nothing of otel_logger."""
    wrong = set()
    for imported in imports(name) & set(MODULES):
        same_package = imported.partition(".")[0] == name.partition(".")[0]
        if same_package and layer(imported) >= layer(name):
            wrong.add(imported)
        if not same_package and name.startswith("otel_logger_exporters"):
            wrong.add(imported)

    assert set() == wrong


@pytest.mark.parametrize("package", sorted(OWNERS))
def test_a_heavy_package_is_imported_by_its_owner_alone(package: str) -> None:
    """Each optional or heavy package has one module that knows it."""
    importers = {name for name in MODULES if any(i.partition(".")[0] == package for i in imports(name))}

    assert OWNERS[package] == importers


def test_the_environment_is_read_in_one_place() -> None:
    """Everything else is given a mapping, so that nothing is read at import or twice."""
    readers = {
        name
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv"}
    }

    assert ENVIRONMENT_READERS == readers


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"otel_logger.__main__"}))
def test_what_a_module_offers_is_in_its_all(name: str) -> None:
    """A name in `__all__` exists: public means no underscore and listed."""
    offered = [
        [element.value for element in node.value.elts if isinstance(element, ast.Constant)]
        for node in MODULES[name].body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
        and isinstance(node.value, ast.List)
    ]
    if not offered:
        assert name in {"otel_logger._version", "otel_logger_exporters"}
        return
    module = __import__(name, fromlist=["_"]) if name != "otel_logger.composer" else None

    assert [] == [public for public in offered[0] if module is not None and not hasattr(module, public)]
    assert [] == [public for public in offered[0] if public.startswith("_") and public != "__version__"]


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import otel_logger` costs its names alone: no torch, NumPy, Composer, gRPC or OpenTelemetry SDK."""
    program = (
        "import sys, otel_logger; "
        "print([m for m in ('torch', 'numpy', 'composer', 'grpc', 'opentelemetry.sdk', 'PIL', 'prometheus_client', "
        "'urllib3', 'obstore', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()


def test_a_logger_in_local_mode_loads_no_transport_and_no_media_library(tmp_path: Path) -> None:
    """Constructing and closing a logger that sends and stores nothing loads neither gRPC nor obstore nor NumPy."""
    program = (
        "import sys; from otel_logger import OTelLogger; OTelLogger(run_name='x', "
        f"environ={{'OTEL_LOGGER_DIR': {str(tmp_path)!r}, 'OTEL_LOGGER_BLOB_STORE': 's3://bucket'}}).close(); "
        "print([m for m in ('torch', 'numpy', 'grpc', 'PIL', 'prometheus_client', 'urllib3', 'rich', 'obstore', "
        "'pyarrow', 'boto3') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()
