"""The images: every step of the Dockerfile is executed, and what it makes is run. Without a Docker engine too."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

from tests.agent.test_agent_process import free_port
from tests.conftest import TEMPORARY_ROOT, give_up
from tests.deploy.dockerfile import Build, find_python
from tests.documents import ROOT
from tests.local.processes import running_command

pytestmark = [pytest.mark.slow, pytest.mark.system]

DOCKERFILE = (ROOT / "deploy/images/Dockerfile").read_text()
IGNORED = (ROOT / ".dockerignore").read_text().splitlines()
COPIED = [
    source for words in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE) for source in words.split()[:-1]
]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS = {name: wanted for name, wanted in PROJECT["dependency-groups"].items() if name != "dev"}
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT_URL = "https://example.com/platform/gpusteward"


@pytest.mark.parametrize("source", COPIED)
def test_copied_files_exist_and_are_not_ignored(source: str):
    assert (ROOT / source).exists()
    assert "*" in IGNORED
    assert f"!{source.partition('/')[0] if source.startswith('web/') else source}" in IGNORED


def test_all_files_of_the_build_are_copied():
    project = (ROOT / "pyproject.toml").read_text()
    locks = {f"requirements/{name}.txt" for name in ("agent", "analyzer", "demo", "build")}
    scripts = {"deploy/images/make_sbom.py", "deploy/images/healthcheck.py"}
    packages = {"web", "web/package.json", "web/package-lock.json", "web/.npmrc"}
    sources = {"pyproject.toml", "hatch_build.py", "src", "README.md", "LICENSE"}
    assert {*sources, *scripts, *locks, *packages} == set(COPIED)
    assert '"README.md"' in (ROOT / "hatch_build.py").read_text()
    assert 'license-files = ["LICENSE"]' in project


def read_pins(name: str) -> dict[str, set[str]]:
    """`numpy==2.4.6 ; python_full_version < '3.12'` -> its hashes."""
    text = (ROOT / f"requirements/{name}.txt").read_text().replace(" \\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    return {
        line.partition(" --hash")[0].strip(): set(re.findall(r"--hash=(sha256:[0-9a-f]{64})", line)) for line in lines
    }


def test_a_plain_install_has_what_every_image_has_except_the_sdks_of_models_and_assistants():
    extras = PROJECT["project"]["optional-dependencies"]
    sdks = [*extras["ai"], *extras["mcp"]]
    wanted = {each for group in GROUPS.values() for each in group}
    assert {*PROJECT["project"]["dependencies"], *sdks} == wanted
    assert not {*PROJECT["project"]["dependencies"]} & {*sdks}


def test_the_demo_has_what_a_plain_install_has():
    locked = {pin.partition("==")[0].partition("[")[0] for pin in read_pins("demo")}
    assert {re.match(r"[a-z0-9-]+", each)[0] for each in PROJECT["project"]["dependencies"]} <= locked
    assert read_pins("demo").items() <= read_pins("dev").items()
    assert not re.search(r"://|index|@", (ROOT / "requirements/demo.txt").read_text())
    assert "-c requirements/dev.txt pyproject.toml -o requirements/demo.txt" in MAKEFILE


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_is_locked_with_the_tested_hashes_and_without_index_addresses(group: str):
    pins, tested = read_pins(group), read_pins("dev")
    assert pins
    assert all(pins.values())
    assert {pin: hashes for pin, hashes in tested.items() if pin in pins} == pins
    wanted = {re.match(r"[a-z0-9-]+", each)[0] for each in GROUPS[group]}
    assert wanted <= {pin.partition("==")[0].partition("[")[0] for pin in pins}
    assert not re.search(r"://|index|@", (ROOT / f"requirements/{group}.txt").read_text())
    assert f"--group {group} -c requirements/dev.txt -o requirements/{group}.txt" in MAKEFILE


@pytest.mark.parametrize(("program", "port"), [("agent", 9400), ("analyzer", 8080)])
def test_each_image_has_the_port_and_command_of_its_manifest(program: str, port: int):
    manifest = (ROOT / f"deploy/manifests/{program}.yaml").read_text()
    assert f"EXPOSE {port}" in DOCKERFILE
    assert f"containerPort: {port}" in manifest
    assert 'ENTRYPOINT ["gpusteward"]' in DOCKERFILE
    tag = re.search(rf"--target {program} -t (\S+)", DOCKERFILE)
    assert tag is not None
    assert f"image: {tag[1]}" in manifest


STAGES = dict(re.findall(r"(?ms)^FROM base AS (\w+)\n(.*?)(?=^FROM|\Z)", DOCKERFILE))
"""The images by their name: the lines of the last stage."""


@pytest.mark.parametrize(("name", "port"), [("agent", 9400), ("analyzer", 8080), ("demo", 8080)])
def test_each_image_runs_as_nobody_and_has_a_health_check_and_labels(name: str, port: int):
    stage = STAGES[name]
    assert "USER 65534:65534\n" in stage
    assert f"EXPOSE {port}\n" in stage
    assert f'CMD ["python", "/opt/healthcheck.py", "{port}"]' in stage
    assert f'org.opencontainers.image.title="gpusteward-{name}"' in stage
    assert "org.opencontainers.image.description=" in stage
    (base,) = re.findall(r"(?ms)^FROM \S+ AS base\n(.*?)(?=^FROM)", DOCKERFILE)
    labels = set(re.findall(r"org\.opencontainers\.image\.([\w.]+)=", base))
    assert labels == {"version", "revision", "source", "licenses", "base.name"}
    assert f"ARG VERSION={PROJECT['project']['version']}\n" in base


def test_hadolint_finds_nothing(tmp_path: Path):
    where = subprocess.run([ROOT / ".ci/hadolint", "path"], capture_output=True, text=True, check=True)
    hadolint = Path(where.stdout.strip()) / "hadolint"
    if not hadolint.exists():
        give_up("hadolint is not installed; `make components` installs it")
    careless = tmp_path / "Dockerfile"
    careless.write_text("FROM python\nRUN cd /tmp && pip install numpy\nCMD gpusteward\n")
    found = subprocess.run([hadolint, careless], capture_output=True, text=True, check=False, timeout=60)
    assert {"DL3006", "DL3013", "DL3042", "DL3025"} <= set(re.findall(r"DL\d+", found.stdout))
    command = [hadolint, ROOT / "deploy/images/Dockerfile"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


UI = "src/gpusteward/analyzer/api/ui/static"


@pytest.fixture(scope="module")
def build() -> Iterator[Build]:
    """The stages of the Dockerfile, where every user can read them."""
    with tempfile.TemporaryDirectory(prefix="gpusteward-images-", dir=os.environ.get(TEMPORARY_ROOT)) as name:
        Path(name).chmod(0o755)
        yield Build(DOCKERFILE, ROOT, Path(name) / "root")


def test_the_stage_of_the_web_ui_builds_what_the_package_serves(build: Build):
    assert {UI, "web/node_modules"} <= set(IGNORED)
    assert (build.make("web") / "source" / UI / "index.html").exists()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("image", STAGES)
def test_every_step_of_an_image_can_be_executed(build: Build, image: str):
    made = build.make(image)
    assert (made / "opt/gpusteward/bin/gpusteward").exists()
    assert not (made / "source").exists(), "what builds it is not in the image"
    assert {step.text for step in build.stages[f"build-{image}"].steps if step.instruction == "RUN"} <= set(
        build.commands
    )
    if has_engine():
        build_with_engine(image)


def has_engine() -> bool:
    """Docker's client may be installed where no engine runs. No skip: the steps have been executed above."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=30).returncode == 0


def build_with_engine(image: str) -> None:
    tag = f"gpusteward-{image}:test-{os.getpid()}"
    command = ["docker", "build", "-f", "deploy/images/Dockerfile", "--target", image, "-t", tag, "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    if re.search(r"no such host|i/o timeout|connection refused|TLS handshake", done.stderr):
        give_up(f"no image registry is reachable: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    try:
        subprocess.run(["docker", "run", "--rm", "--read-only", tag, "--version"], check=True, timeout=60)
    finally:
        subprocess.run(["docker", "rmi", "-f", tag], check=False, capture_output=True, timeout=60)


def test_the_locked_build_backend_alone_makes_the_sdist_and_the_wheel_of_it(build: Build, tmp_path: Path):
    """As a distributor does: without isolation, without an index."""
    with build.placed("build") as root:
        python = str(root / "usr/local/bin/python")
        commands = [
            [python, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)],
            [*f"{python} -m pip wheel --no-index --no-build-isolation --no-deps -w {tmp_path}".split(), "SDIST"],
        ]
        for command in commands:
            words = [str(next(tmp_path.glob("*.tar.gz"))) if word == "SDIST" else word for word in command]
            done = subprocess.run(words, cwd=root / "source", capture_output=True, text=True, check=False, timeout=100)
            assert done.returncode == 0, done.stderr
        (wheel,) = tmp_path.glob("*.whl")
        (expected,) = (root / "wheels").glob("*.whl")
        with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(expected) as theirs:
            assert set(ours.namelist()) == set(theirs.namelist())


def test_the_wheel_and_the_sdist_contain_the_web_ui_and_the_address_of_the_release(
    uv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PROJECT_URL", PROJECT_URL + "/")
    if not (ROOT / UI / "index.html").exists():
        give_up("the web UI is not built; `make web` builds it")
    run_uv(uv, tmp_path, "build", "-q", "--no-build-isolation", "--python", sys.executable, "-o", "dist", str(ROOT))
    built = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / UI).rglob("*") if path.is_file()}
    (wheel,), (sdist,) = (tmp_path / "dist").glob("*.whl"), (tmp_path / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        assert built <= set(archive.namelist())
        check_addresses(read_metadata(archive))
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in built} | {"hatch_build.py", "web/package-lock.json"} <= names
    assert not any("node_modules" in name for name in names)


def read_metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_string(wheel.read(name).decode())


def check_addresses(metadata: Message) -> None:
    """A package index shows the README without the files beside it: all its links are absolute, and exist."""
    at_tag = rf"{re.escape(PROJECT_URL)}/(?:blob|raw)/v{re.escape(metadata['version'])}/"
    urls = dict(value.split(", ") for value in metadata.get_all("project-url", []))
    assert urls["Homepage"] == urls["Source"] == PROJECT_URL
    assert (ROOT / re.sub(at_tag, "", urls["Documentation"])).is_file()
    text = metadata.get_payload()
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", text)
    ours = [(image, link) for image, link in links if link.startswith(PROJECT_URL)]
    assert all(link.startswith(("https://", "#")) for _, link in links)
    assert all((ROOT / re.sub(at_tag, "", link).partition("#")[0]).is_file() for _, link in ours)
    assert {"/raw/" in link for image, link in ours if image} == {True}


def test_a_wheel_of_a_checkout_names_no_address(installer: "Installer"):
    with zipfile.ZipFile(installer.wheel) as archive:
        metadata = read_metadata(archive)
    assert metadata.get_all("project-url") is None
    assert metadata.get_payload().strip() == (ROOT / "README.md").read_text().strip()


@pytest.fixture(scope="module")
def uv() -> str:
    built_by_make = ROOT / ".build/uv/bin/uv"
    path = shutil.which("uv") or (str(built_by_make) if built_by_make.exists() else None)
    if path is None:
        give_up("uv is not installed; `make test` installs it")
    return str(path)


class Installer:
    """Installs the wheel of this checkout, built once, with locked requirements or plainly."""

    def __init__(self, uv: str, folder: Path) -> None:
        self._uv = uv
        words = ["build", "-q", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", "dist", str(ROOT)]
        run_uv(uv, folder, *words)
        (self.wheel,) = (folder / "dist").glob("*.whl")

    def install(self, folder: Path, lock: str = "") -> Path:
        """The bin directory of a new environment: what an image contains, or a plain install."""
        run_uv(self._uv, folder, "venv", "-q", "--no-python-downloads", "--python", sys.executable, "venv")
        pip = ["pip", "install", "-q", "--python", str(folder / "venv/bin/python")]
        if lock:
            run_uv(self._uv, folder, *pip, "--require-hashes", "-r", str(ROOT / f"requirements/{lock}.txt"))
        # A plain install has the versions of the lock, so that a test fails only for what is declared.
        others = ["--no-deps"] if lock else ["-c", str(ROOT / "requirements/dev.txt")]
        run_uv(self._uv, folder, *pip, *others, str(self.wheel))
        return folder / "venv/bin"


@pytest.fixture(scope="module")
def installer(uv: str, tmp_path_factory: pytest.TempPathFactory) -> Installer:
    return Installer(uv, tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def installed(build: Build) -> Iterator[Path]:
    """The programs of the agent's image."""
    with build.placed("agent") as root:
        yield root / "opt/gpusteward/bin"


def run_uv(uv: str, folder: Path, *words: str) -> None:
    done = subprocess.run([uv, *words], check=False, cwd=folder, capture_output=True, text=True, timeout=100)
    if done.returncode and re.search(r"dns error|[Ff]ailed to (fetch|connect)|error sending request", done.stderr):
        give_up(f"no package index is reachable: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def test_the_agent_needs_only_its_locked_dependencies_and_the_wheel(installed: Path, tmp_path: Path):
    done = run_installed(installed, tmp_path, "gpusteward", "agent", "--help")
    assert done.startswith("usage: gpusteward agent")
    modules = "gpusteward.agent.app, gpusteward.agent.node_source, bcrypt, yaml, sys"
    parts = f"import {modules}; print(gpusteward.__file__)"
    assert str(installed.parent) in run_installed(installed, tmp_path, "python", "-c", parts)


def test_the_wheel_contains_only_the_package(installed: Path, tmp_path: Path):
    names = run_installed(
        installed, tmp_path, "python", "-c", "import os, sysconfig; print(*os.listdir(sysconfig.get_path('purelib')))"
    )
    assert "gpusteward" in names.split()
    assert not {"tests", "docs", "bench", "pytest"} & set(names.split())


def test_the_analyzer_needs_only_its_locked_dependencies(build: Build, tmp_path: Path):
    parts = "import gpusteward.analyzer.app, gpusteward.analyzer.explain.model_client; print('imported')"
    with build.placed("analyzer") as root:
        programs = root / "opt/gpusteward/bin"
        assert "usage: gpusteward serve" in run_installed(programs, tmp_path, "gpusteward", "serve", "--help")
        assert "imported" in run_installed(programs, tmp_path, "python", "-c", parts)


def test_the_command_line_needs_only_its_locked_dependencies(installer: Installer, tmp_path: Path):
    programs = installer.install(tmp_path, "cli")
    assert "thresholds.idle" in run_installed(programs, tmp_path, "gpusteward", "settings")
    parts = "import gpusteward.cli.top.app, gpusteward.cli.commands.report, rich; print('imported')"
    assert "imported" in run_installed(programs, tmp_path, "python", "-c", parts)


IMAGE_PYTHON = re.search(r"(?m)^ARG PYTHON_IMAGE=(python:([\d.]+)\S*)$", DOCKERFILE)
assert IMAGE_PYTHON is not None


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
@pytest.mark.parametrize("lock", ["agent", "analyzer", "demo", "build"])
def test_every_locked_requirement_has_a_wheel_for_the_python_of_the_images(
    uv: str, tmp_path: Path, lock: str, architecture: str
):
    platform = ["--python-platform", f"{architecture}-manylinux_2_28", "--python-version", IMAGE_PYTHON[2]]
    target = ["--python", sys.executable, "--target", str(tmp_path), "--dry-run"]
    locked = ["--require-hashes", "--only-binary", ":all:", "-r", str(ROOT / f"requirements/{lock}.txt")]
    run_uv(uv, tmp_path, "pip", "install", *target, *platform, *locked)


IN_A_CONTAINER = """
writable=$1 programs=$2 python=$3 hidden=$4; shift 4
mount --make-rprivate / && mount --bind "$writable" "$writable" && mount --bind "$programs" "$programs" || exit 97
if [ "$hidden" ]; then  # a folder that only its owner may enter, with the interpreter in it
  mount --bind "$python" /mnt && mount -t tmpfs -o mode=755 none "$hidden" && mkdir -p "$python" || exit 97
  mount --move /mnt "$python" && mount -o remount,ro "$hidden" || exit 97
fi
mount -o remount,ro,bind "$programs" && mount -o remount,ro,bind / || exit 97
exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --bounding-set=-all env -i "$@"
"""
"""Runs a command as nobody with an empty environment and a read-only root, except for one folder."""


def contain(root: Path, writable: Path, command: Sequence[str]) -> list[str]:
    writable.chmod(0o777)
    python = Path(find_python(IMAGE_PYTHON[1])).parents[1]
    hidden = next((str(each) for each in reversed(python.parents) if not each.stat().st_mode & stat.S_IXOTH), "")
    as_root = [] if os.getuid() == 0 else ["sudo", "-n"]
    folders = [str(writable), str(root), str(python), hidden]
    return [*as_root, "unshare", "-m", "sh", "-c", IN_A_CONTAINER, "sh", *folders, *command]


@pytest.fixture
def writable() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gpusteward-writable-") as name:
        yield Path(name)


def check_contained(root: Path, writable: Path) -> None:
    """Gives up where no mounts can be made. Makes sure that the rest of the root cannot be written."""
    trial = f"open('{writable}/a', 'w').close()\nopen('{root}/b', 'w').close()"
    command = contain(root, writable, [str(root / "opt/gpusteward/bin/python"), "-c", trial])
    root.chmod(0o777)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    root.chmod(0o755)
    if done.returncode == 97 or "sudo:" in done.stderr or "unshare:" in done.stderr:
        give_up(f"no mount namespace: {done.stderr.strip()}")
    assert "Read-only file system" in done.stderr
    assert (writable / "a").exists()


SERVED = {
    "agent": (["agent", "--source=simulated"], "/metrics", "gpusteward_gpu_up{"),
    "analyzer": (["serve", "--set", "ledger.directory=WRITABLE"], "/metrics", "gpusteward_analyzer_build_info{"),
    "demo": (["demo", "--nodes=4"], "/api/v1/workloads", '"items":[{'),
}


@pytest.mark.parametrize("image", SERVED)
def test_an_image_runs_as_nobody_with_an_empty_environment_on_a_read_only_root(
    build: Build, writable: Path, image: str
):
    words, path, expected = SERVED[image]
    assert f'CMD ["{words[0]}"' in STAGES[image]
    port = free_port()
    arguments = [word.replace("WRITABLE", str(writable)) for word in (*words, f"--address=127.0.0.1:{port}")]
    temporary = [f"TMPDIR={writable}"] if image == "demo" else []  # stands for /tmp
    with build.placed(image) as root:
        check_contained(root, writable)
        command = [*temporary, str(root / "opt/gpusteward/bin/gpusteward"), *arguments]
        with running_contained(contain(root, writable, command)) as process:
            wait_until_healthy(root, port, process)
            assert wait_for_text(f"http://127.0.0.1:{port}{path}", expected)


@contextmanager
def running_contained(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


def wait_until_healthy(root: Path, port: int, process: subprocess.Popen[bytes]) -> None:
    """By the command of the image's HEALTHCHECK."""
    check = [str(root / "opt/gpusteward/bin/python"), str(root / "opt/healthcheck.py"), str(port)]
    assert subprocess.run([*check[:2], str(free_port())], check=False).returncode == 1
    deadline = time.monotonic() + 60
    while subprocess.run(check, check=False, timeout=20).returncode:
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < deadline, "not healthy after 60 s"
        time.sleep(0.2)


def wait_for_text(url: str, expected: str) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                if expected in response.read().decode():
                    return True
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 503:  # it is alive, and has no result before the first cycle
                raise
        time.sleep(0.2)
    return False


@pytest.mark.timeout(300)
def test_a_plain_install_runs_the_demo_and_says_how_to_add_model_sdks(installer: Installer, tmp_path: Path):
    programs = installer.install(tmp_path)
    environ = {"PATH": os.defpath, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [str(programs / "gpusteward"), "demo", "--address", "127.0.0.1:0", "--nodes", "4"]  # two may all be free
    with running_command(command, env=environ) as demo:
        demo.wait_for_address(120)
        assert demo.wait_for("/api/v1/workloads", 60)["items"]
        demo.interrupt()
    refused = subprocess.run(
        [programs / "gpusteward", "serve", "--set", "ai.enabled=true", "--address", "127.0.0.1:0"],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 2
    assert refused.stderr.endswith("install them with pip install 'gpusteward[ai]', or set ai.enabled to false\n")


def test_the_settings_command_loads_only_libraries_of_the_extra_cli():
    """Although more libraries are installed here."""
    code = (
        "import sys; from gpusteward.cli.main import main; main(['settings']);"
        "print('loaded', *{name.partition('.')[0] for name, module in sys.modules.items()"
        " if 'site-packages' in (getattr(module, '__file__', None) or '')})"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30)
    loaded = set(done.stdout.splitlines()[-1].split()[1:])
    of_extra = {"numpy", "pydantic", "yaml"}
    indirect = {
        "annotated_types",
        "pydantic_core",
        "typing_extensions",
        "typing_inspection",
        "_distutils_hack",
    }
    assert loaded <= of_extra | indirect


def run_installed(installed: Path, folder: Path, program: str, *words: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    done = subprocess.run(
        [str(installed / program), *words],
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
