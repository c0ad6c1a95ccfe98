"""A process that dies with files on their way into a store that is down leaves them to the next one."""

import signal
from pathlib import Path

from otel_logger import OTelLogger, read_run
from tests.children import HEAD, Child

DOWN = {
    "OTEL_LOGGER_BLOB_STORE": "s3://bucket/runs",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ALLOW_HTTP": "true",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
}

PROGRAM = (
    HEAD
    + """
log = OTelLogger(run_name="run")
log.log_metrics({"loss": 1.0}, 1)
source = os.path.join(os.environ["OTEL_LOGGER_DIR"], "..", "source")
for epoch in range(3):
    for name in (f"ep{epoch}.pt", "latest.pt"):
        with open(source, "w") as file:
            file.write(f"{name} of {epoch}")
        log.upload_file(None, name, source, overwrite=name == "latest.pt")
log.log_table(["a"], [[1]], name="table")
log.flush(0.5)
say("folder", log.run_dir)
wait_for_the_word()
"""
)


def test_a_run_goes_on_with_what_a_killed_process_had_not_stored(tmp_path: Path) -> None:
    """The newest that was uploaded is read, the same names are uploaded again, and all is stored and told once."""
    with Child(PROGRAM, tmp_path, DOWN) as child:
        ((folder,),) = child.wait_for("folder")
        child.kill(signal.SIGKILL)
        child.wait()

    logs = {"OTEL_LOGGER_DIR": str(tmp_path / "logs")}
    source, target = tmp_path / "source", tmp_path / "back"
    # As one who only wants to load, before he knows which run he is.
    reader = OTelLogger(environ={**logs, **DOWN})
    reader.download_file("latest.pt", str(target), progress_bar=False)
    reader.close()
    assert "latest.pt of 2" == target.read_text()

    # The store has moved meanwhile.
    store = tmp_path / "store"
    with OTelLogger(run_name="run", environ={**logs, "OTEL_LOGGER_BLOB_STORE": store.as_uri()}) as log:
        log.log_metrics({"loss": 0.5}, 2)
        for name in ("ep2.pt", "ep3.pt"):
            source.write_text(f"{name} again")
            log.upload_file(None, name, source)
        assert log.run_dir == Path(folder)

    rows = list(read_run(folder).blobs)
    assert {"ep0.pt": 1, "ep1.pt": 1, "ep2.pt": 2, "ep3.pt": 1, "latest.pt": 3, "table": 1} == {
        name: [row["name"] for row in rows].count(name) for name in {row["name"] for row in rows}
    }
    assert {"stored"} == {row["outcome"] for row in rows} - {"superseded"}
    assert {
        "ep0.pt": "ep0.pt of 0",
        "ep1.pt": "ep1.pt of 1",
        "ep2.pt": "ep2.pt again",
        "ep3.pt": "ep3.pt again",
        "latest.pt": "latest.pt of 2",
    } == {path.name: path.read_text() for path in (store / "files").iterdir()}
    assert [] == list(Path(folder).glob("*/staged"))
