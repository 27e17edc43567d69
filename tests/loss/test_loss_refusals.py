"""loss: what cannot be asked of a position is refused, with what was given."""

import pytest
import torch

from llmcourse import loss
from llmcourse.data import corpus
from llmcourse.data.tokenizer import train_bpe
from llmcourse_labs import tuning
from llmcourse_labs.tuning import CHAT_TOKENS, Turn, chat_tokens

IGNORED, IDS = torch.full((1, 3), loss.IGNORE_INDEX), torch.tensor([[0, 1, 2]])
ROW, FIRST = torch.zeros(1, 3), torch.tensor([0])
DEPTHS, SHORT = [torch.zeros(1, 3, 5)] * 3, [torch.zeros(1, 1, 5)] * 3
PLAIN = train_bpe([corpus.stories(5_000, 0)], 300, [corpus.END_OF_TEXT])
CHAT = train_bpe([corpus.stories(5_000, 0)], 300, [corpus.END_OF_TEXT, *CHAT_TOKENS])


def chunked(num_chunks):
    x, w = torch.ones(1, 2), torch.ones(7, 2)
    return loss.cross_entropy_chunked(x, w, FIRST, num_chunks=num_chunks)


def distilled(targets=0, **settings):
    both = {"student_BTV": torch.zeros(5, 7), "teacher_BTV": torch.zeros(5, 7)}
    return tuning.distillation(**both, targets_BT=torch.full((5,), targets), **settings)


REFUSED = [
    (lambda: loss.cross_entropy(DEPTHS[0], IGNORED), "no token counts"),
    (lambda: loss.cross_entropy(ROW, FIRST, num_tokens=0), "num_tokens must be positive"),
    *(
        (lambda t=t: loss.cross_entropy(ROW, t), rf"target {int(t)} is outside .* \[0, 3\)")
        for t in torch.tensor([[-1], [3], [1000]])
    ),
    (lambda: chunked(0), "num_chunks must be from 1 to 7"),
    (lambda: chunked(8), "num_chunks must be from 1 to 7"),
    (lambda: loss.bits_per_byte(1.0, num_tokens=1, num_bytes=0), "num_bytes must be above 0"),
    (lambda: loss.multi_token_loss(DEPTHS[:1], IDS, weight=0.3), "no logits beyond the next token"),
    (lambda: loss.multi_token_loss(DEPTHS, IDS, weight=0.0), "weight must be above 0, got 0"),
    (lambda: loss.multi_token_loss(SHORT, IDS[:, :1], weight=1.0), "no token counts"),
    (lambda: loss.shifted_targets(IDS, ahead=0), "ahead must be 1 or greater, got 0"),
    (lambda: loss.mask_from_roles(["user"]), r"no token is learned: the roles are \['user'\]"),
    (lambda: loss.count_targets([IGNORED]), "every target of the step is ignored"),
    (lambda: loss.count_targets([]), "every target of the step is ignored"),
    (lambda: loss.z_loss(ROW, FIRST, coefficient=0.0), "coefficient must be above 0"),
    (lambda: loss.z_loss(ROW, FIRST, num_tokens=0), "num_tokens must be positive, got 0"),
    (lambda: loss.z_loss(DEPTHS[0], IGNORED), "every target of the step is ignored"),
    (lambda: distilled(temperature=0), "temperature"),
    (lambda: distilled(hard_share=1.5), "hard_share"),
    (lambda: distilled(loss.IGNORE_INDEX), "no token counts"),
    (lambda: distilled(7), "outside the vocabulary"),
    (lambda: chat_tokens([], CHAT), "at least one turn"),
    (lambda: chat_tokens([Turn("cat", "Meow")], CHAT), "system, user, assistant, got 'cat'"),
    (lambda: chat_tokens([Turn("user", "Hello")], PLAIN), "the tokenizer lacks"),
]


@pytest.mark.parametrize(("call", "fact"), REFUSED)
def test_what_cannot_be_is_refused(call, fact):
    with pytest.raises(ValueError, match=fact):
        call()
