"""The command line: verbs only. Whatever takes long to import is imported where it is used."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import shlex
import signal
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.console import Console
from rich.text import Text

from kernelpath.course import lesson, progress, registry
from kernelpath.course.errors import DeclarationError
from kernelpath.course.progress import Progress, Record
from kernelpath.course.registry import Item, Lane, Tree
from kernelpath.course.stubs import NoStub
from kernelpath.show import view
from kernelpath.verdict import Measurement, Report, Verdict

if TYPE_CHECKING:
    from kernelpath.exam.checkpoint import Asked, Certificate, Exam, Sheet
    from kernelpath.grading.grade import Device

PASSED, NOT_YET, USED_WRONGLY, INTERRUPTED = 0, 1, 2, 130

out = Console(highlight=False, markup=False, emoji=False)
errors = Console(highlight=False, markup=False, emoji=False, stderr=True)


class Failure(click.ClickException):
    """Something was used wrongly. The message ends in what to do."""

    exit_code = USED_WRONGLY


def _found(_: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """The exercises that the command line names."""
    if parameter.nargs == -1:
        return tuple(registry.find(name) for name in value)
    return None if value is None else registry.find(value)


def _completed(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    return [item.name for item in registry.exercises() if item.name.startswith(begun)]


name_argument = click.argument("item", metavar="NAME", callback=_found, shell_complete=_completed)
device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where kernels run; auto takes the GPU if there is one.",
)
json_option = click.option("--json", "json_to", metavar="PATH", help="Write the whole report as JSON; - is stdout.")
seed_option = click.option("--seed", type=int, help="Replay the inputs of an earlier run, which printed its seed.")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `kp`. Exit status: 0 passed, 1 not yet, 2 used wrongly, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    sys.exit(_status(arguments))


def _status(arguments: Sequence[str] | None) -> int:
    try:
        return cli.main(arguments, prog_name="kp", standalone_mode=False) or PASSED
    except click.UsageError as error:
        error.show()
        return USED_WRONGLY
    except (registry.LookupFailed, DeclarationError, NoStub, progress.NotSaved, Failure) as error:
        _complain(str(error))
        return USED_WRONGLY
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return PASSED
    except OSError as error:
        _complain(f"{error.filename or 'the system says'}: {error.strerror or error}; mend that and try again")
        return USED_WRONGLY
    except Exception as error:
        told = textwrap.shorten(repr(error), 300, placeholder=" [...]")
        _complain(f"kernelpath itself failed: {told}; please report it together with {_crash_file()}")
        return USED_WRONGLY


def _complain(message: str) -> None:
    errors.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)


def _crash_file() -> str:
    with tempfile.NamedTemporaryFile("w", prefix="kernelpath-", suffix=".txt", delete=False, encoding="utf-8") as file:
        file.write(" ".join(sys.argv) + "\n" + traceback.format_exc())
    return file.name


def _warn(message: str) -> None:
    errors.print(Text.assemble(("warning: ", "bold yellow"), message), soft_wrap=True)


def _save(item: Item, change: Callable[[Record], Record]) -> None:
    try:
        Progress(item.root, _warn).update(item.stem, change)
    except progress.NotSaved as error:
        _warn(str(error))


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kernelpath", prog_name="kernelpath")
@click.pass_context
def cli(context: click.Context) -> int | None:
    """Learn GPU kernel engineering: edit a stub, ask for a verdict, read why, go on.

    Without a command: the next thing to do.
    """
    return None if context.invoked_subcommand else _show_next()


@cli.command("next")
def next_() -> int:
    """Show what to read, edit and type next."""
    return _show_next()


def _show_next() -> int:
    items = registry.exercises()
    item = _next_item()
    if item is None:
        out.print(f"All {len(items)} exercises are passed.")
        view.step(out, "kp progress")
        return PASSED
    done = items.index(item)
    out.print(Text.assemble((item.name, "bold"), f"  {item.title}"))
    out.print(Text(f"week {item.week}, {view.LANES[item.lane]}, exercise {done + 1} of {len(items)}\n", "dim"))
    if item.notebook is not None:
        out.print(f"read  {view.place(str(item.notebook), item.root)}", soft_wrap=True)
    for position, path in enumerate(item.files("phases")):
        out.print(f"{'' if position else 'edit':6s}{view.place(str(path), item.root)}", soft_wrap=True)
    view.step(out, f"kp watch {item.name}")
    return PASSED


def _records() -> list[tuple[Item, Record]]:
    """Every exercise in the order of the syllabus, with what is known of it."""
    known = Progress(registry.root(), _warn).records()
    return [(item, known.get(item.stem, progress.NOTHING)) for item in registry.exercises()]


def _next_item() -> Item | None:
    """The first exercise of the syllabus that has not been passed."""
    return next((item for item, record in _records() if not record.passed), None)


@cli.command("list")
def list_() -> int:
    """List all exercises in syllabus order."""
    view.syllabus(out, _records())
    return PASSED


@cli.command()
@click.argument("items", metavar="[NAME]...", nargs=-1, callback=_found, shell_complete=_completed)
@click.option("--all", "everything", is_flag=True, help="Grade a whole tree and print one table.")
@click.option(
    "--tree",
    type=click.Choice(["phases", "solutions"]),
    default="phases",
    show_default=True,
    help="Grade your files or the reference kernels.",
)
@click.option("--file", "path", type=click.Path(path_type=Path), help="Grade this file as the exercise NAME.")
@device_option
@seed_option
@json_option
def check(
    items: tuple[Item, ...],
    everything: bool,
    tree: Tree,
    path: Path | None,
    device: Device,
    seed: int | None,
    json_to: str | None,
) -> int:
    """Grade exercises. Without a NAME: the next one.

    The JSON is one report where one exercise is graded, else a list of reports.
    """
    if everything and (items or path):
        raise click.UsageError("--all grades every exercise: give neither NAME nor --file with it.")
    if path is not None and len(items) != 1:
        raise click.UsageError("--file needs exactly one NAME.")
    if path is not None and not _python_file(path).is_file():
        raise Failure(f"there is no file {_python_file(path)}; give --file one that there is")
    if json_to not in (None, "-") and not Path(json_to).absolute().parent.is_dir():
        raise Failure(f"cannot write {json_to}; give --json a path in a folder that exists")
    items = registry.exercises() if everything else tuple(dict.fromkeys(items)) or _unfinished()
    quiet = json_to == "-"
    graded = []
    for position, item in enumerate(items, start=1):
        label = f"{position} of {len(items)}: {item.name}" if len(items) > 1 else item.name
        submission = _python_file(path) if path else item.submission(tree)
        one = _again(_grade(item, submission, label, device=device, seed=seed), item, path, tree)
        graded.append((item, one))
        if path is None and tree == "phases":
            _remember(item, one)
        if not (everything or quiet):
            if position > 1:
                out.print()
            _show(item, one, next_step=len(items) == 1)
    if not quiet and (everything or len(items) > 1):
        _sum_up(graded, tree)
    if json_to is not None:
        _write_json(json_to, [one for _, one in graded], single=not everything and len(items) == 1)
    return _exit_status(graded, everything)


def _again(graded: Report, item: Item, path: Path | None, tree: Tree) -> Report:
    """The report with a next step that grades the same file, where that is not the learner's own."""
    if path is None and tree == "phases":
        return graded
    command = f"kp check {item.name}"
    same = f"{command} --file {shlex.quote(str(path))}" if path else f"{command} --tree {tree}"
    return dataclasses.replace(graded, next_step=graded.next_step.replace(command, same))


def _unfinished() -> tuple[Item, ...]:
    item = _next_item()
    if item is None:
        raise Failure("every exercise is passed; name one to grade it again, or give --all")
    return (item,)


def _python_file(path: Path) -> Path:
    """The file that defines the entry: a kernel's .cu stands for the .py beside it."""
    return path.with_suffix(".py") if path.suffix == ".cu" else path


def _grade(item: Item, submission: Path, label: str, **options: Any) -> Report:
    with errors.status(f"{label}: starting") as status:
        _start_workers()
        from kernelpath.grading import grade

        def tell(what: str) -> None:
            status.update(f"{label}: {what}")

        try:
            return grade.grade(item, submission, report_progress=tell, **options)
        except grade.Usage as error:
            raise Failure(str(error)) from error


def _start_workers() -> None:
    """Before all else that needs torch: to import it takes as long as the imports of the workers, beside it."""
    from kernelpath.work import forkserver

    forkserver.running()
    with _interruptible():
        import kernelpath.grading.grade  # noqa: F401


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end what is inside. numpy, imported by torch, swallows it or turns it into an ImportError."""
    heard = []

    def hear(*_: object) -> None:
        heard.append(True)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard:
            raise KeyboardInterrupt


def _show(item: Item, graded: Report, *, next_step: bool = True) -> None:
    view.report(out, item, graded, explain=lesson.read(item.lesson).explain, next_step=next_step)


def _remember(item: Item, graded: Report) -> None:
    if graded.verdict.passed:
        _save(item, lambda record: progress.with_report(record, graded))
    try:
        Progress(item.root, _warn).keep(graded, item.files("phases"))
    except progress.NotSaved as error:
        _warn(str(error))


def _write_json(target: str, reports: list[Report], *, single: bool) -> None:
    data = [dataclasses.asdict(one) for one in reports]
    text = json.dumps(data[0] if single else data, indent=1, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        progress.write_atomically(Path(target), text)
    except OSError as error:
        raise Failure(f"cannot write {target}: {error.strerror}; give --json a path in a folder that exists") from error


def _sum_up(graded: list[tuple[Item, Report]], tree: Tree) -> None:
    """The table, the cause of each failure, and the one next step."""
    out.print()
    view.table(out, graded)
    failed = [item for item, one in graded if not _acceptable(one)]
    if failed:
        view.step(out, f"kp check {failed[0].name}" + (f" --tree {tree}" if tree != "phases" else ""))


def _acceptable(graded: Report) -> bool:
    return graded.verdict in (Verdict.PASSED, Verdict.UNAVAILABLE)


def _exit_status(graded: list[tuple[Item, Report]], everything: bool) -> int:
    """With --all, what this machine cannot run does not fail the rest, as long as something passed."""
    some = any(one.verdict.passed for _, one in graded)
    fine = all(_acceptable(one) if everything else one.verdict.passed for _, one in graded)
    return PASSED if some and fine else NOT_YET


@cli.command()
@click.argument("item", metavar="[NAME]", required=False, callback=_found, shell_complete=_completed)
@device_option
@seed_option
def watch(item: Item | None, device: Device, seed: int | None) -> int:
    """Grade an exercise whenever you save it.

    Without a NAME: the next one. Ctrl-C ends.
    """
    from kernelpath.cli.watch import saves

    item = item or _unfinished()[0]
    with errors.status(f"{item.name}: starting"):
        _start_workers()
        from kernelpath.grading import grade
    try:
        with grade.Session(item, item.stub, device=device, warm=True) as check_now:
            for _ in saves(item.files("phases")):
                _show_again(item, check_now(seed=seed))
    except grade.Usage as error:
        raise Failure(str(error)) from error
    return PASSED


def _show_again(item: Item, graded: Report) -> None:
    if out.is_terminal:
        out.clear()
    command = f"kp check {item.name}"
    at_once = graded.next_step.replace(f", then {command}", " and save it")
    _show(item, graded if command + " --" in graded.next_step else dataclasses.replace(graded, next_step=at_once))
    _remember(item, graded)
    out.print(Text("\nwatching; Ctrl-C ends", "dim"))


@cli.command()
@name_argument
@click.argument("level", type=click.IntRange(1, 3), required=False)
def hint(item: Item, level: int | None) -> int:
    """Show a hint.

    The next one that you have not seen, or the one of LEVEL 1, 2 or 3. After a pass they are not counted.
    """
    hints = lesson.read(item.lesson).hints
    known = dict(_records())[item]
    level = level or min(known.hints + 1, len(hints))
    out.print(Text.assemble((f"hint {level} of {len(hints)}: ", "bold"), hints[level - 1]))
    if known.passed:
        view.step(out, f"kp hint {item.name} {level + 1}" if level < len(hints) else f"kp solution {item.name}")
        return PASSED
    if level > known.hints:
        _save(item, lambda record: dataclasses.replace(record, hints=level))
    view.step(out, f"kp watch {item.name}")
    return PASSED


@cli.command()
@name_argument
@click.option("--peek", is_flag=True, help="Show it before you have passed.")
def solution(item: Item, peek: bool) -> int:
    """Show the reference kernel beside yours.

    If there is a GPU, both are timed in one run.
    """
    if not item.files("solutions"):
        raise Failure(
            f"the solution of {item.name} is withheld: there is no {view.place(str(item.solution), item.root)}"
        )
    if not (peek or dict(_records())[item].passed):
        out.print(f"{item.name} is not passed yet; --peek shows its solution all the same.")
        view.step(out, f"kp hint {item.name}")
        return NOT_YET
    view.sources(out, item)
    with errors.status("looking for a GPU"), _interruptible():
        from kernelpath.grading import grade
    if grade.resolve_device("auto") != "cuda":
        out.print(Text("\nnot timed: this machine has no GPU", "dim"))
        return PASSED
    graded = _grade(item, item.stub, item.name, device="cuda")
    _show(item, graded)
    return PASSED


@cli.command()
@name_argument
def reset(item: Item) -> int:
    """Put the stub back; your files are kept."""
    from kernelpath.course import stubs

    texts = stubs.pristine(item)
    if all(path.is_file() and path.read_bytes() == text.encode() for path, text in texts.items()):
        out.print(f"{item.name} is the stub already")
        view.step(out, f"kp watch {item.name}")
        return PASSED
    try:
        kept = stubs.keep(item)
        for path, text in texts.items():
            progress.write_atomically(path, text)
    except OSError as error:
        raise Failure(f"{item.name} is not reset: {error.strerror}: {error.filename}; make it writable") from error
    if kept is not None:
        out.print(f"your files are kept in {view.place(str(kept), item.root)}")
    out.print(f"{item.name} is the stub again")
    view.step(out, f"kp watch {item.name}")
    return PASSED


@cli.command("progress")
def progress_() -> int:
    """Show what is passed, with stars and times."""
    view.progress(out, _records(), Progress(registry.root(), _warn).scores())
    item = _next_item()
    view.step(out, f"kp watch {item.name}" if item else "kp report")
    return PASSED


@cli.command()
def doctor() -> int:
    """Show what this machine can run.

    For whatever is missing, the command that installs it.
    """
    with _interruptible():
        from kernelpath import doctor as examination
    with errors.status("looking"), _interruptible():
        findings = examination.examine()
    view.findings(out, findings)
    return PASSED if any(finding.works for finding in findings if finding.lane) else NOT_YET


@cli.command()
@name_argument
@click.option(
    "--picture", type=click.Path(path_type=Path), metavar="PATH", help="Where the roofline goes. [.kernelpath/NAME.png]"
)
@seed_option
@json_option
def bench(item: Item, picture: Path | None, seed: int | None, json_to: str | None) -> int:
    """Measure on the GPU and draw the roofline."""
    graded = _grade(item, item.stub, item.name, device="cuda", seed=seed, bench=True)
    _remember(item, graded)
    if json_to is not None:
        _write_json(json_to, [graded], single=True)
    if json_to != "-":
        _show(item, graded)
    if graded.measurement is not None:
        path = picture or progress.folder(item.root) / f"{item.name}.png"
        progress.write_atomically(path, _roofline(graded.measurement))
        errors.print(f"roofline: {view.place(str(path), item.root)}")
    return PASSED if graded.verdict.passed else NOT_YET


def _roofline(measured: Measurement) -> bytes:
    """A picture of the learner's kernel, the reference kernel and the baseline, as PNG."""
    from kernelpath.grading.roofline import roofline_plot

    times = {"yours": measured.seconds, "reference": measured.reference_seconds, "baseline": measured.baseline_seconds}
    runs = {name: dataclasses.replace(measured, seconds=time) for name, time in times.items() if time is not None}
    picture = io.BytesIO()
    roofline_plot(runs, measured.ceilings).savefig(picture, format="png", dpi=150)
    return picture.getvalue()


@cli.command()
@name_argument
@click.option("--tree", type=click.Choice(["phases", "solutions"]), default="phases", show_default=True)
@click.option("--picture", type=click.Path(path_type=Path), help="Where the PNG goes. [.kernelpath/NAME-memory.png]")
def profile(item: Item, tree: Tree, picture: Path | None) -> int:
    """Draw the source with its counters.

    Below it are the addresses of one warp and the banks of shared memory.
    """
    _start_workers()
    from kernelpath.grading import grade

    with errors.status(item.name), grade.Session(item, item.submission(tree), device="cpu") as session:
        try:
            heaviest = session.heaviest()
        except grade.NotDrawn as error:
            out.print(str(error))
            view.step(out, f"kp check {item.name}" + (f" --tree {tree}" if tree != "phases" else ""))
            return NOT_YET
        except grade.Usage as error:
            raise Failure(str(error)) from error
    from kernelpath.show.picture import draw

    source = item.submission(tree).with_name(Path(heaviest.file).name)
    figure, drawn = draw(heaviest, source.read_text(encoding="utf-8"), f"{item.name}: {source.name}"), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=120)
    path = picture or progress.folder(item.root) / f"{item.name}-memory.png"
    progress.write_atomically(path, drawn.getvalue())
    view.step(out, f"open {view.place(str(path), item.root)}")
    return PASSED


@cli.command()
@click.option("--out", "to", type=click.Path(path_type=Path), help="Where the page goes. [.kernelpath/report.html]")
def report(to: Path | None) -> int:
    """Write the web page of your progress.

    Verdicts, times and traffic as of the last kp check of each exercise. One file; it needs no network.
    """
    from kernelpath.show import report as web

    root = registry.root()
    page = web.page(root, _records(), Progress(root, _warn))
    to = to or progress.folder(root) / "report.html"
    progress.write_atomically(to, page)
    view.step(out, f"open {view.place(str(to), root)} in a browser")
    return PASSED


@cli.command()
@click.argument("number", metavar="N", type=click.IntRange(1))
@click.option(
    "--from",
    "place",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder with the kernels and answers.toml. [phases/N_...]",
)
@click.option("--ask/--no-ask", default=None, help="Ask what is not answered rightly yet. [if this is a terminal]")
@click.option("--week", type=int, metavar="W", help="Only ask that week's questions; nothing is graded.")
@click.option(
    "--verify",
    "certificate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check a certificate against the same submission.",
)
@click.option("--out", "to", type=click.Path(path_type=Path), help="The folder for the certificate. [.kernelpath]")
@device_option
@seed_option
def checkpoint(
    number: int,
    place: Path | None,
    ask: bool | None,
    week: int | None,
    certificate: Path | None,
    to: Path | None,
    device: Device,
    seed: int | None,
) -> int:
    """Take the exam of phase N.

    Your exercises of the phase are graded again, its questions are asked, and its deliverable, one of the exercises,
    is graded at further sizes. Questions are answered here or in answers.toml beside your kernels. A pass writes a
    certificate as JSON and HTML.
    """
    with errors.status("starting"):
        _start_workers()
        from kernelpath.exam import checkpoint as exams
        from kernelpath.grading import grade
    exam = exams.find(number)
    folder = place or exam.folder
    try:
        if certificate is not None:
            return _verify(exam, folder, certificate, device)
        exam.require_files(folder)
        sheet = exams.Sheet(exam, folder / exams.ANSWERS)
        sheet.save()
        again = f"kp checkpoint {number}" + (f" --from {shlex.quote(str(place))}" if place else "")
        if week is not None:
            return _ask_week(sheet, week, again)
        view.exam_parts(out, exam, sheet)
        if sys.stdin.isatty() if ask is None else ask:
            _interview(sheet, sheet.questions, again)
        for sentence in sheet.complaints():
            _warn(f"{view.place(str(sheet.path), exam.root)}: {sentence}")
        with errors.status(f"checkpoint {number}") as status:
            result = exams.sit(exam, folder, device=device, seed=seed, tell=status.update)
    except (exams.NotValid, grade.Usage) as error:
        raise Failure(str(error)) from error
    try:
        Progress(exam.root, _warn).keep_try(number, result.to_json())
    except progress.NotSaved as error:
        _warn(str(error))
    out.print()
    view.checkpoint(out, exam, result, sheet)
    if not result.passed:
        view.step(out, _what_is_missing(exam, result, sheet, again))
        return NOT_YET
    to = to or progress.folder(exam.root)
    to.mkdir(parents=True, exist_ok=True)
    pages = {to / f"checkpoint{number}.json": result.to_json(), to / f"checkpoint{number}.html": result.to_html()}
    for path, text in pages.items():
        progress.write_atomically(path, text)
        out.print(f"certificate: {view.place(str(path), exam.root)}", soft_wrap=True)
    view.step(out, "kp next")
    return PASSED


def _ask_week(sheet: Sheet, week: int, again: str) -> int:
    """Ask the questions of one week. `again` is the command for the whole exam."""
    questions = [question for question in sheet.questions if question.week == week]
    if not questions:
        weeks = sorted({question.week for question in sheet.questions})
        raise click.UsageError(f"--week is one of {', '.join(map(str, weeks))}.")
    _interview(sheet, questions, f"{again} --week {week}")
    right = sum(sheet.right[question.key] for question in questions)
    out.print(f"\n{right} of {len(questions)} questions of week {week} are answered rightly")
    view.step(out, again if right == len(questions) else f"{again} --week {week}")
    return PASSED if right == len(questions) else NOT_YET


def _interview(sheet: Sheet, questions: Sequence[Asked], again: str) -> None:
    """Ask what is not answered rightly yet. Each answer is saved at once, so that the command `again` goes on."""
    asked = [question for question in questions if not sheet.right[question.key]]
    if asked:
        out.print(Text(f"\n{len(asked)} questions; Ctrl-C stops, and what you answered is kept", "dim"))
    for position, question in enumerate(asked, start=1):
        view.question(out, question, f"question {position} of {len(asked)}")

        def understood(text: str, question: Asked = question) -> str:
            if text and not question.understands(text):
                raise click.BadParameter(f"type {question.wanted}")
            return text

        try:
            answer = click.prompt("your answer (Enter skips)", default="", show_default=False, value_proc=understood)
        except click.Abort:
            out.print(f"\nkept; go on with {again}", soft_wrap=True)
            raise
        if answer:
            view.answered(out, question, sheet.answer(question, answer))


def _what_is_missing(exam: Exam, result: Certificate, sheet: Sheet, again: str) -> str:
    """The one step that brings a pass nearer."""
    for item, report in zip(exam.items, result.exercises, strict=True):
        if not report.verdict.passed:
            return f"kp watch {item.name}"
    for report in result.deliverable:
        if not report.verdict.passed:
            return f"kp check {exam.deliverable.name} --seed {report.seed}"
    return f"answer in {view.place(str(sheet.path), exam.root)}, then {again}"


def _verify(exam: Exam, folder: Path, path: Path, device: Device) -> int:
    from kernelpath.exam import checkpoint as exams

    old = exams.Certificate.from_json(path.read_bytes())
    with errors.status("checking the certificate") as status:
        differences = exams.verify(exam, folder, old, device=device, tell=status.update)
    for sentence in differences:
        out.print(sentence)
    if differences:
        view.step(
            out, f"give the folder of the certified submission: kp checkpoint {exam.number} --from DIR --verify ..."
        )
        return NOT_YET
    holds = f"the certificate holds: {old.score} of 100 on {old.date}, {old.device}, seed {old.seed}"
    out.print(holds, soft_wrap=True)
    return PASSED


@cli.command("grade")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("items", metavar="[NAME]...", nargs=-1, callback=_found, shell_complete=_completed)
@click.option("--out", "to", type=click.Path(path_type=Path), help="Where the grades go. [DIR-grades]")
@device_option
@click.option("--seed", type=int, default=0, show_default=True, help="Draws sizes and inputs, the same for all.")
@click.option("--jobs", type=click.IntRange(1), help="How many at a time without a GPU. [one for each processor]")
def grade_(folder: Path, items: tuple[Item, ...], to: Path | None, device: Device, seed: int, jobs: int | None) -> int:
    """Grade a class: DIR holds a folder for each learner.

    Without a NAME: every exercise that anybody handed in. Writes grades.csv, grades.json and a results.json for
    Gradescope for each learner. A second run does only what changed.

    Exit status 0: everything was graded, whether passed or not. 1: something could not be graded.
    """
    folder = folder.resolve()
    to = to or folder.with_name(f"{folder.name}-grades")
    with errors.status("starting"), _interruptible():
        from kernelpath.grading import grade
        from kernelpath.school import classroom
    chosen = items or classroom.default_items(folder)
    if not chosen:
        raise Failure(f"nobody in {folder} has a file named like {registry.exercises()[0].solution.name}; name a NAME")
    try:
        with view.bar(errors) as tell:
            grades = classroom.grade_class(folder, to, chosen, device=device, seed=seed, jobs=jobs, tell=tell)
    except grade.Usage as error:
        raise Failure(str(error)) from error
    except KeyboardInterrupt:
        errors.print(f"\nwhat is graded is kept; go on with kp grade {shlex.quote(str(folder))}", soft_wrap=True)
        raise
    view.school(out, grades)
    ungraded = [one for one in grades if one.key == classroom.UNFINISHED]
    again = f"kp grade {shlex.quote(str(folder))}, once more"
    view.step(out, again if ungraded else f"read {to / 'grades.csv'}")
    return NOT_YET if ungraded else PASSED


@cli.group()
def dev() -> None:
    """For contributors."""


@dev.command("check")
@click.option("--quick", is_flag=True, help="Only what needs no grading.")
def dev_check(quick: bool) -> int:
    """Check the invariants that hold the course together."""
    from kernelpath.dev import invariants

    found = 0
    for invariant in invariants.QUICK if quick else invariants.ALL:
        name = invariant.__name__.replace("_", " ")
        with errors.status(name):
            findings = list(invariant(registry.root()))
        found += len(findings)
        out.print(Text.assemble(("FAIL ", "red") if findings else ("ok   ", "green"), name))
        for finding in findings:
            out.print(f"     {finding}")
    return NOT_YET if found else PASSED


@dev.command("new")
@click.argument("name", metavar="NAME")
@click.option("--problem", required=True, help="The operator: a module of course/problems.")
@click.option("--lane", type=click.Choice(["cuda", "triton", "cute", "python"]), required=True)
@click.option("--week", type=int, help="[that of the last exercise]")
@click.option("--letter", help="Its place in the week. [the next free one]")
def dev_new(name: str, problem: str, lane: Lane, week: int | None, letter: str | None) -> int:
    """Draft the files of a new exercise: declaration, lesson, stub, solution and a notebook cell."""
    from kernelpath.dev import draft

    try:
        written = draft.draft(name, problem, lane, week, letter)
    except draft.NotDrafted as error:
        raise Failure(str(error)) from error
    for path in written:
        out.print(f"wrote {view.place(str(path), registry.root())}", soft_wrap=True)
    view.step(out, "kp dev check --quick names what is still to be written")
    return PASSED


@dev.command("tables")
def dev_tables() -> int:
    """Bring the generated tables of the documents up to date."""
    from kernelpath.show import docs

    for name in docs.rewrite(registry.root()):
        out.print(f"rewrote {name}")
    return PASSED


if __name__ == "__main__":
    main()
