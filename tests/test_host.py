"""Test workers and the server that forks them: how their exits are reported, and that no process survives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.device import messages as device
from kernelpath.grading import grade
from kernelpath.verdict import Verdict
from kernelpath.work import landlock, messages, quota, runner
from kernelpath.work.host import Worker, WorkerExited, WorkerTimeout
from kernelpath.work.quota import Excess
from kernelpath.work.runner import SubmissionFailed, Usage
from kernelpath.work.workspace import Workspace
from tests.conftest import GradeText, is_gone
from tests.waiting import PATIENCE, happens

ROOT = Path(__file__).parents[1]

SUBMISSION = "import ctypes, numpy, os, signal, time\ndef double(x):\n    {}\n"

# A shell starts a program, unseen by Python's audit hook, and prints its process id.
START = "ctypes.CDLL(None).system(b'{program} & echo $!')"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPATH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def worker(doubling: ExerciseRef) -> Iterator[Worker]:
    worker = Worker(Workspace(doubling.stub))
    yield worker
    worker.close()


def run(worker: Worker, item: ExerciseRef, body: str, seconds: float = PATIENCE) -> messages.WorkerResponse:
    """Return the response of the worker after it has called an entry with this body."""
    item.stub.write_text(SUBMISSION.format(body))
    begin(worker, item)
    return worker.receive(seconds)


def begin(worker: Worker, item: ExerciseRef) -> None:
    """Have the worker call the entry of the item's stub."""
    worker.start(str(item.root), item.path_id, "cpu", None)
    worker.send(messages.LoadSubmission(file=str(Workspace(item.stub).copy(alone=True).file), hidden=[]))
    worker.send(messages.Run(case={"n": 4}, seed=1))
    assert isinstance(worker.receive(60.0), messages.Done)
    assert isinstance(worker.receive(60.0), messages.Done)


def run_until_printed(worker: Worker, item: ExerciseRef, body: str) -> int:
    """Call an entry with this body, wait until it has printed a line, and return the number in that line."""
    item.stub.write_text(SUBMISSION.format(body))
    begin(worker, item)
    assert happens(lambda: worker.printed.endswith("\n"))
    return int(worker.printed)


def finding_of(answer: messages.WorkerResponse) -> tuple[Verdict, str]:
    assert isinstance(answer, messages.ReportedFinding)
    return answer.finding.verdict, answer.finding.cause


@pytest.mark.parametrize(
    ("body", "status"), [("os._exit(3)", 3), ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV)]
)
def test_the_exit_status_of_a_worker_is_reported(worker: Worker, doubling: ExerciseRef, body: str, status: int) -> None:
    with pytest.raises(WorkerExited) as exited:
        run(worker, doubling, body)
    assert exited.value.status == status


def test_a_silent_worker_is_killed_with_its_children(doubling: ExerciseRef) -> None:
    worker = Worker(Workspace(doubling.stub))
    child = run_until_printed(worker, doubling, f"{START.format(program='sleep 600')}; time.sleep(600)")
    with pytest.raises(WorkerTimeout):
        worker.receive(0.0)
    worker.close()
    assert happens(lambda: is_gone(child))
    assert happens(lambda: is_gone(worker.pid))


def test_a_worker_leaves_no_daemon(doubling: ExerciseRef) -> None:
    worker = Worker(Workspace(doubling.stub))
    with pytest.raises(WorkerExited):
        run(worker, doubling, f"{START.format(program='setsid sleep 600')}; os._exit(0)")
    child = int(worker.printed)
    worker.close()
    assert happens(lambda: is_gone(child))


@pytest.mark.parametrize(
    "escape",
    [
        "setsid sleep 600 & echo $!",
        "setsid sh -c 'echo $$; exec sleep 600'",
        "(setsid sh -c 'echo $$; exec sleep 600' &)",
        "setsid sh -c 'echo $$; kill -STOP $$'",
        "trap '' TERM HUP INT; setsid sh -c 'echo $$; while true; do sleep 600; done' &",
    ],
)
def test_no_process_group_outlives_a_worker(doubling: ExerciseRef, escape: str) -> None:
    worker = Worker(Workspace(doubling.stub))
    child = run_until_printed(worker, doubling, f"ctypes.CDLL(None).system({escape.encode()!r}); time.sleep(600)")
    with pytest.raises(WorkerTimeout):
        worker.receive(0.0)
    worker.close()
    assert happens(lambda: is_gone(child))


_SLOW = "is this computer busy, or short of memory? try again when it is idle"


def test_a_slow_ptx_machine_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    item = registry.find("vector_add")
    with grade.Session(grade.Job.create(item, item.solution, device="cpu")) as session:
        session.workers.copy_submission()
        case_runner = session.workers.runner(session.plan.grader.setup)
        case_runner.ready()
        assert case_runner._machine is not None
        os.kill(case_runner._machine.get()._process.pid, signal.SIGSTOP)
        monkeypatch.setattr(runner, "CASE_SECONDS", 0.5)
        with pytest.raises(SubmissionFailed) as failure:
            case_runner.request_machine(device.RecordEvents(case_runner.client), device.Acknowledged)
        case_runner.close()
    finding = failure.value.finding
    assert finding.verdict is Verdict.TIMED_OUT
    assert finding.cause == f"the PTX machine gave no answer within 0.5 s: {_SLOW}"
    assert finding.step == "{check} --seed {seed}"


def test_a_slow_start_of_a_worker_is_not_an_installation_error(monkeypatch: pytest.MonkeyPatch) -> None:
    item = registry.find("vector_add")
    monkeypatch.setattr(runner, "START_SECONDS", 0.0)
    with grade.Session(grade.Job.create(item, item.solution, device="cpu")) as session:
        session.workers.copy_submission()
        with pytest.raises(Usage, match=f"no answer within 0 s: {_SLOW[:22]}"):
            session.workers.runner(session.plan.grader.setup).ready()


def test_a_quota_exceeded_during_the_start_is_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker of the previous case may have filled the folder, which the next worker finds while it starts."""

    def receive(self: Worker, *_: float) -> messages.WorkerResponse:
        raise WorkerExited(Excess.BYTES)

    item = registry.find("vector_add")
    monkeypatch.setattr(Worker, "receive", receive)
    with grade.Session(grade.Job.create(item, item.solution, device="cpu")) as session:
        session.workers.copy_submission()
        with pytest.raises(SubmissionFailed) as failure:
            session.workers.runner(session.plan.grader.setup).ready()
    assert failure.value.finding.verdict is Verdict.CRASHED
    assert "wrote more than its quota" in failure.value.finding.cause


def test_a_stopped_server_does_not_block_the_grader(worker: Worker, doubling: ExerciseRef) -> None:
    with pytest.raises(WorkerTimeout):
        run(worker, doubling, "time.sleep(600)", seconds=0.5)
    server = int(Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(server, signal.SIGSTOP)
    worker.close()
    assert happens(lambda: is_gone(worker.pid))


# Entries that exceed a quota without any single file that is too large.
TOO_MUCH = {
    # 66 is O_RDWR | O_CREAT. A file of 60 MiB is below the limit on a single file.
    "while True: os.posix_fallocate(os.open(f'{time.time()}', 66), 0, 60 << 20)": Excess.BYTES,
    "while True: os.posix_fallocate(os.open('x', 66), 0, 60 << 20); os.unlink('x')": Excess.BYTES,
    "for i in range(20_000): open(f'{i}', 'w').close()": Excess.FILES,
    "for i in range(100): os.mkdir('x' * 200); os.chdir('x' * 200)": Excess.FILES,
    "os.mkdir('x'); os.chmod('x', 0)": Excess.FILES,
    "ctypes.CDLL(None).system(b'for i in $(seq 300); do sleep 600 & done; wait')": Excess.PROCESSES,
    "ctypes.CDLL(None).system(b'b(){ [ $1 -gt 0 ] && { b $(($1-1)) & b $(($1-1)) & wait; } || sleep 600; }; b 9')": (
        Excess.PROCESSES
    ),
}


@pytest.mark.parametrize("body", TOO_MUCH)
def test_a_submission_has_a_quota(worker: Worker, doubling: ExerciseRef, body: str) -> None:
    if "chmod" in body and os.geteuid() == 0:
        pytest.skip("root reads every folder")
    with pytest.raises(WorkerExited) as exited:
        run(worker, doubling, f"{body}\n    time.sleep(600)")
    assert exited.value.status == TOO_MUCH[body]
    Workspace(doubling.stub).clean()
    assert not (Workspace(doubling.stub).own / "tmp").exists()


def test_an_exceeded_quota_is_named(grade_text: GradeText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "CASE_SECONDS", PATIENCE)  # enough for any disk to write 512 MiB
    body = "while True: torch.save(torch.zeros(1 << 23), f'{torch.rand(1).item()}')"
    report = grade_text(f"def double(x):\n    {body}\n")
    assert report.verdict is Verdict.CRASHED
    assert report.cause == "the submission wrote more than its quota of 512 MiB of files"


def test_a_submission_dies_with_a_killed_grader(doubling: ExerciseRef) -> None:
    doubling.stub.write_text(SUBMISSION.format("time.sleep(600)"))
    grader = f"""
import os, signal
from pathlib import Path
from kernelpath.course.registry import ExerciseRef
from kernelpath.work.host import Worker
from kernelpath.work.workspace import Workspace
from tests.test_host import begin
item = ExerciseRef(Path({str(doubling.root)!r}), {doubling.path_id!r})
worker = Worker(Workspace(item.stub))
begin(worker, item)
print(worker.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = subprocess.run([sys.executable, "-c", grader], cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert happens(lambda: is_gone(int(process.stdout)))


def test_a_submission_runs_out_of_memory(worker: Worker, doubling: ExerciseRef) -> None:
    verdict, cause = finding_of(run(worker, doubling, "hoard = [numpy.empty(1 << 25) for _ in range(1 << 20)]"))
    assert verdict is Verdict.CRASHED
    assert "out of memory" in cause


def test_a_submission_cannot_fill_the_disk(worker: Worker, doubling: ExerciseRef) -> None:
    verdict, cause = finding_of(run(worker, doubling, "while True: print('x' * 1_000_000)"))
    assert verdict is Verdict.CRASHED
    assert f"{quota.FILE_SIZE >> 20} MiB" in cause
    assert len(worker.printed) < 100_000


def test_a_submission_that_kills_the_server_harms_only_itself(worker: Worker, doubling: ExerciseRef) -> None:
    body = "os.kill(os.getppid(), signal.SIGKILL); time.sleep(600)"
    if landlock.version() >= 6:
        assert finding_of(run(worker, doubling, body)) == (
            Verdict.ACCESS_DENIED,
            f"{os.strerror(1)}: the submission accesses another process or the network",
        )
    else:
        with pytest.raises(WorkerExited) as exited:
            run(worker, doubling, body)
        assert exited.value.status == -signal.SIGKILL
    next_worker = Worker(Workspace(doubling.stub))
    with pytest.raises(WorkerExited) as exited:
        run(next_worker, doubling, "os._exit(5)")
    assert exited.value.status == 5
    next_worker.close()


def test_an_unused_worker_leaves_no_process(doubling: ExerciseRef) -> None:
    worker = Worker(Workspace(doubling.stub))
    pid = worker.pid
    worker.close()
    assert happens(lambda: is_gone(pid))


def test_workers_share_no_open_files(doubling: ExerciseRef) -> None:
    """A worker has only its own channel and output open: no other worker's, and not the server's."""
    workers = [Worker(Workspace(doubling.stub)) for _ in range(3)]
    body = (
        "names = [os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if fd.isdigit()"
        " and os.path.exists(f'/proc/self/fd/{fd}')]; print(*names, sep='\\n', flush=True); os._exit(0)"
    )
    with pytest.raises(WorkerExited):
        run(workers[-1], doubling, body)
    open_files = workers[-1].printed.splitlines()
    assert sum(name.startswith("socket:") for name in open_files) == 1
    assert not any(name.startswith("pipe:") for name in open_files)
    for worker in workers:
        worker.close()


def test_a_clean_worker_is_forked_from_a_process_without_the_library(doubling: ExerciseRef) -> None:
    """A library that is only removed from sys.modules can still be found among the subclasses of object."""
    body = "raise ValueError([kind.__name__ for kind in object.__subclasses__() if kind.__module__ == 'wave'])"
    causes = []
    for clean in (False, False, True):
        worker = Worker(Workspace(doubling.stub), needs="wave", clean=clean)
        causes.append(finding_of(run(worker, doubling, body))[1])
        worker.close()
    assert ["'Wave_read'" in cause for cause in causes] == [True, True, False]
    assert causes[-1] == "ValueError: []"


def test_the_last_error_excludes_the_advice_after_it(worker: Worker) -> None:
    stderr_text = "Traceback…\ntorch.AcceleratorError: CUDA error: out of memory\nSearch for it.\nCompile with `X`.\n"
    os.pwrite(worker._process._output.fileno(), stderr_text.encode(), 0)
    assert worker.last_error == "torch.AcceleratorError: CUDA error: out of memory"
