"""A widget about a failed node: a spare, a wait, or fewer replicas."""

from llmcourse_classroom.state import Choice, Limited, Whole
from llmcourse_classroom.widget import Widget
from llmcourse_labs.scale.scheduler import ANSWERS


class ClusterBoard(Widget):
    """The nodes of one job over a day in which one of them fails, under three answers.

    The spares are part of the cluster only where the job takes one.

    Args:
        state: answer (spare, wait or shrink), replicas, replica_nodes, spares, and in hours
            checkpoint, fails, restart, repair, and hour: the moment that the board shows.
    """

    script = "cluster_board.js"
    alt = (
        "A board of nodes, a row for each replica and one for the spares, each node marked as "
        "working, losing its work, restarting, reserved, down or idle; below it the same over a "
        "day in which one node fails at hour 7, and a table of what the node-hours went into when "
        "the job takes a spare, waits for the repair, or goes on with fewer replicas."
    )

    answer = Choice(ANSWERS)
    replicas = Whole(4, low=1, high=8, step=1, label="replicas")
    replica_nodes = Whole(2, low=1, high=4, step=1, label="nodes of a replica")
    spares = Whole(1, low=1, high=4, step=1, label="spare nodes")
    checkpoint = Limited(2, low=0.25, high=12, step=0.25, label="hours between checkpoints")
    fails = Limited(7, low=0.25, high=23.75, step=0.25, label="fails at hour")
    restart = Limited(0.5, low=0, high=4, step=0.25, label="restart, hours")
    repair = Limited(6, low=0, high=24, step=0.25, label="repair, hours")
    hour = Limited(8, low=0, high=24, step=0.25, label="shown hour")
