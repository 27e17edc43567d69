"""The simulator beside what was published:  python -m llmcourse_labs.scale.simulator [fit]."""

import sys

from llmcourse_labs.scale.simulator import FITTED, PREDICTED, fit, root_mean_square, validate


def main(words: list[str]) -> str | None:
    """Print the table of validation, or the number that is fitted; a message is an error."""
    if words == ["fit"]:
        print(f"share of the best product that fits the first five rows: {fit():.2f}")
        return None
    if words:
        return (
            f"python -m llmcourse_labs.scale.simulator takes fit or nothing, got {' '.join(words)}"
        )
    print(f"{'':44} {'printed':>18} {'paper, s':>9} {'here, s':>8} {'rate':>7}")
    for title, published in (("fitted", FITTED), ("not fitted", PREDICTED)):
        rows = validate(published)
        for row in rows:
            seconds = f"{row.published.seconds:9.2f} {row.step.seconds:8.2f}"
            name, printed = row.published.name, row.published.printed
            print(f"{name:44} {printed:>18} {seconds} {row.error:+7.1%}")
        most = max(abs(row.error) for row in rows)
        print(f"{title}: root mean square {root_mean_square(rows):.1%}, largest {most:.1%}\n")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
