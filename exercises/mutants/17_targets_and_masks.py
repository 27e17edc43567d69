"""Typical wrong answers to the exercises of chapter 17, and what the checks say to them."""

# %% 17.1 not_shifted
# says: you asked each position for the token that it reads: the loss goes to 0, and the model
# learns to copy
import torch


def shifted_targets(ids_BT, documents_BT):
    return torch.where(documents_BT >= 0, ids_BT, -100)


# %% 17.1 the_other_way
# says: you shifted the other way: position t is asked for token t + 1, and it has already read
# token t - 1
import torch


def shifted_targets(ids_BT, documents_BT):
    targets_BT = torch.full_like(ids_BT, -100)
    asked = (documents_BT[:, 1:] == documents_BT[:, :-1]) & (documents_BT[:, 1:] >= 0)
    targets_BT[:, 1:][asked] = ids_BT[:, :-1][asked]
    return targets_BT


# %% 17.1 rolled
# says: the last position is asked for the first token: torch.roll brings around what falls off the
# end
import torch


def shifted_targets(ids_BT, documents_BT):
    after_BT = torch.roll(documents_BT, -1, dims=1)
    asked = (documents_BT == after_BT) & (after_BT >= 0)
    return torch.where(asked, torch.roll(ids_BT, -1, dims=1), -100)


# %% 17.1 rows_run_on
# says: the rows run into each other: the last position of a row is asked for nothing, also when the
# next row carries the same document number
import torch


def shifted_targets(ids_BT, documents_BT):
    ids, documents = ids_BT.flatten(), documents_BT.flatten()
    targets = torch.full_like(ids, -100)
    asked = (documents[1:] == documents[:-1]) & (documents[1:] >= 0)
    targets[:-1][asked] = ids[1:][asked]
    return targets.view_as(ids_BT)


# %% 17.1 first_token_left_out
# says: at a border it is the last token of the old document that is asked for nothing: the first of
# the new one has a next token like any other
import torch


def shifted_targets(ids_BT, documents_BT):
    targets_BT = torch.full_like(ids_BT, -100)
    targets_BT[:, :-1] = ids_BT[:, 1:]
    targets_BT[:, 1:][documents_BT[:, 1:] != documents_BT[:, :-1]] = -100
    targets_BT[documents_BT < 0] = -100
    return targets_BT


# %% 17.1 padding_is_a_document
# says: padding is asked for padding, or a token is: they have one document number, -1, and yet they
# are no document
import torch


def shifted_targets(ids_BT, documents_BT):
    targets_BT = torch.full_like(ids_BT, -100)
    asked = documents_BT[:, 1:] == documents_BT[:, :-1]
    targets_BT[:, :-1][asked] = ids_BT[:, 1:][asked]
    return targets_BT


# %% 17.2 where_it_is_asked
# says: you marked the positions at which the answer is asked for: mark the tokens themselves, as
# the shift is done afterwards
def learned_tokens(tokens, roles):
    speaker, learned = None, []
    for token in tokens:
        if token in ("<|system|>", "<|user|>", "<|assistant|>"):
            speaker = token[2:-2]
            learned.append(False)
        else:
            learned.append(speaker in roles)
            if token == "<|end|>":
                speaker = None
    return [*learned[1:], False][: len(tokens)]


# %% 17.2 name_is_learned
# says: you count <|assistant|>: the program writes it to hand over the floor, and the model is
# never asked for it
def learned_tokens(tokens, roles):
    speaker, learned = None, []
    for token in tokens:
        if token in ("<|system|>", "<|user|>", "<|assistant|>"):
            speaker = token[2:-2]
        learned.append(speaker in roles)
        if token == "<|end|>":
            speaker = None
    return learned


# %% 17.2 end_left_out
# says: you left out the <|end|> of the answer: a model that never learned to stop goes on, and soon
# it writes the user's part as well
def learned_tokens(tokens, roles):
    speaker, learned = None, []
    for token in tokens:
        special = token in ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
        if special:
            speaker = None if token == "<|end|>" else token[2:-2]
        learned.append(not special and speaker in roles)
    return learned


# %% 17.2 every_end
# says: you count the user's <|end|>: it belongs to the turn that it ends, and the user wrote it
def learned_tokens(tokens, roles):
    speaker, learned = None, []
    for token in tokens:
        if token == "<|end|>":
            speaker = None
            learned.append(True)
        elif token in ("<|system|>", "<|user|>", "<|assistant|>"):
            speaker = token[2:-2]
            learned.append(False)
        else:
            learned.append(speaker in roles)
    return learned


# %% 17.2 never_back
# says: in a chat of four turns the floor changes three times: the second question does not count,
# and both answers do
def learned_tokens(tokens, roles):
    learning, inside, learned = False, False, []
    for token in tokens:
        if token in ("<|system|>", "<|user|>", "<|assistant|>"):
            learning = learning or token[2:-2] in roles
            inside = True
            learned.append(False)
            continue
        learned.append(learning and inside)
        if token == "<|end|>":
            inside = False
    return learned


# %% 17.2 floor_is_kept
# says: what stands outside of all turns counts for you: after <|end|> nobody has the floor, and
# padding is no answer
def learned_tokens(tokens, roles):
    speaker, learned = None, []
    for token in tokens:
        if token in ("<|system|>", "<|user|>", "<|assistant|>"):
            speaker = token[2:-2]
            learned.append(False)
        else:
            learned.append(speaker in roles)
    return learned


# %% 17.3 mean_of_means
# says: you averaged the means: the one target of the short micro-batch then weighs as much as the
# three of the other together
def loss_factors(targets):
    return [[1 / len(own) for _ in own] for own in targets]


# %% 17.3 positions
# says: you counted positions: of the 5 and 3 there are, only 3 and 1 have a target that counts
def loss_factors(targets):
    total = sum(batch.numel() for own in targets for batch in own)
    return [[batch.numel() * len(targets) / total for batch in own] for own in targets]


# %% 17.3 for_sums
# says: your factors are right for a program that adds up losses: this one has already divided each
# micro-batch by its own count
def loss_factors(targets):
    total = sum(int((batch != -100).sum()) for own in targets for batch in own)
    return [[len(targets) / total for _ in own] for own in targets]


# %% 17.3 ranks_are_averaged
# says: you forgot that the ranks' gradients are averaged: that divides by their number once more,
# and your gradient is half of the right one
def loss_factors(targets):
    counts = [[int((batch != -100).sum()) for batch in own] for own in targets]
    total = sum(map(sum, counts))
    return [[count / total for count in own] for own in counts]


# %% 17.3 each_rank_its_own
# says: each rank divides by its own targets only: averaging then gives the one target of the second
# rank the weight of the three of the first
def loss_factors(targets):
    counts = [[int((batch != -100).sum()) for batch in own] for own in targets]
    return [[count / max(sum(own), 1) for count in own] for own in counts]


# %% 17.4 the_other_way_round
# says: you named the pair the other way round: the reader is the document of the row t, and the
# later one can read here
import torch


def find_leaks(mask_TS, documents, num_layers):
    itself = torch.eye(len(documents))
    takes_in = torch.maximum(mask_TS.float(), itself)
    knows = itself
    for _ in range(num_layers):
        knows = (takes_in @ knows > 0).float()
    pairs = {(documents[s], documents[t]) for t, s in knows.nonzero().tolist()}
    return sorted((a, b) for a, b in pairs if a != b and a >= 0 and b >= 0)


# %% 17.4 padding_reads
# says: padding reads two documents here, but it is none itself: nobody counts its loss
import torch


def find_leaks(mask_TS, documents, num_layers):
    itself = torch.eye(len(documents))
    takes_in = torch.maximum(mask_TS.float(), itself)
    knows = itself
    for _ in range(num_layers):
        knows = (takes_in @ knows > 0).float()
    pairs = {(documents[t], documents[s]) for t, s in knows.nonzero().tolist()}
    return sorted((a, b) for a, b in pairs if a != b)


# %% 17.4 below_the_diagonal
# says: you looked only below the diagonal: this mask lets document 0 read a token of document 4,
# which comes later
import torch


def find_leaks(mask_TS, documents, num_layers):
    itself = torch.eye(len(documents))
    takes_in = torch.maximum(mask_TS.float().tril(), itself)
    knows = itself
    for _ in range(num_layers):
        knows = (takes_in @ knows > 0).float()
    pairs = {(documents[t], documents[s]) for t, s in knows.nonzero().tolist()}
    return sorted((a, b) for a, b in pairs if a != b and a >= 0 and b >= 0)


# %% 17.4 one_layer
# says: you looked at one layer: in the first document 1 reads document 0, and in the second
# document 2 reads what document 1 has learned
def find_leaks(mask_TS, documents, num_layers):
    pairs = {(documents[t], documents[s]) for t, s in mask_TS.nonzero().tolist()}
    return sorted((a, b) for a, b in pairs if a != b and a >= 0 and b >= 0)


# %% 17.4 to_the_end
# says: you followed every path to its end: with one layer, document 2 gets document 1 as it was
# before it had read anything
import torch


def find_leaks(mask_TS, documents, num_layers):
    itself = torch.eye(len(documents))
    takes_in = torch.maximum(mask_TS.float(), itself)
    knows = itself
    for _ in documents:
        knows = (takes_in @ knows > 0).float()
    pairs = {(documents[t], documents[s]) for t, s in knows.nonzero().tolist()}
    return sorted((a, b) for a, b in pairs if a != b and a >= 0 and b >= 0)


# %% 17.4 nothing_is_kept
# says: you forgot what a position keeps: here no position may look at itself, but the residual path
# carries into the second layer what was read in the first
def find_leaks(mask_TS, documents, num_layers):
    reads = mask_TS.float()
    for _ in range(num_layers - 1):
        reads = (mask_TS.float() @ reads > 0).float()
    pairs = {(documents[t], documents[s]) for t, s in reads.nonzero().tolist()}
    return sorted((a, b) for a, b in pairs if a != b and a >= 0 and b >= 0)
