"""The recurrences of Table 1 of the ABC paper, token by token: the oracle of every control.

Each function yields, for one sentence and after each of its tokens, the memory's keys (H, M, D),
its values (H, M, D) and which slots are written (H, M). Inputs are k, v (H, S, D) and x (S, E) of
the sentence without its padding, in float64.
"""

import torch
from torch.nn.functional import elu, normalize

from fairseq_memattn.attention.ops.kernel import naive as kernel_naive
from fairseq_memattn.attention.ops.spill import naive as spill_naive
from fairseq_memattn.attention.ops.window import naive as window_naive

B, H, D, M = 3, 2, 4, 3
LONGEST = 11  # max_positions of every control
STRIDE = 4
GLOBAL = (0, 4)  # the tokens of local_global's two global slots; its window has two more


def phi_linformer(control, t):
    """Section 3.1."""
    return control.weight[t]


def phi_random(control, t):
    """Appendix A.2."""
    return torch.eye(M).double()[control.table[t]]


def phi_compressive(control, t):
    """Appendix A.3, equation 14."""
    ratio = -(-LONGEST // M)
    return torch.eye(M).double()[t // ratio].expand(H, M) / ratio


def phi_global(control, t):
    """Appendix A.1: every fourth token, from the first."""
    return torch.eye(M).double()[t // STRIDE].expand(H, M) * (t % STRIDE == 0)


# The additive strategies: phi_t (H or 1, M) of position t.
ADDITIVE = {
    "linformer": phi_linformer,
    "random": phi_random,
    "compressive": phi_compressive,
    "global": phi_global,
}


def additive(name):
    def memories(control, k, v, x):
        keys, values = torch.zeros(H, M, D).double(), torch.zeros(H, M, D).double()
        written = torch.zeros(H, M, dtype=torch.bool)
        for t in range(k.shape[1]):
            phi = ADDITIVE[name](control, t)
            keys = keys + phi[:, :, None] * k[:, t, None]
            values = values + phi[:, :, None] * v[:, t, None]
            written = written | (phi != 0)
            yield keys, values, written

    return memories


ACTIVATIONS = {"exp": torch.exp, "sigmoid": torch.sigmoid}


def mlp(control, k, v, x):
    """Equation 12 and footnote 5."""
    alpha = ACTIVATIONS[control.activation](x @ control.proj.weight.T).view(len(x), -1, M)
    for t in range(k.shape[1]):
        phi = (alpha[: t + 1] / alpha[: t + 1].sum(0)).permute(1, 2, 0)
        yield phi @ k[:, : t + 1], phi @ v[:, : t + 1], torch.ones(H, M, dtype=torch.bool)


def is_routed(control, logits):
    """In the slots with the largest logits (S, h, M)."""
    return logits >= logits.sort(dim=2, descending=True).values[:, :, control.top_k - 1, None]


def routed(control, k, v, x):
    """Equation 12, each token in its slots alone."""
    logits = (x @ control.proj.weight.T).view(len(x), -1, M)
    alpha = logits.exp() * is_routed(control, logits)
    for t in range(k.shape[1]):
        total = alpha[: t + 1].sum(0)
        phi = (alpha[: t + 1] / total.where(total > 0, 1.0)).permute(1, 2, 0)
        yield phi @ k[:, : t + 1], phi @ v[:, : t + 1], (total > 0).expand(H, M)


def routed_gated(control, k, v, x):
    """The recurrence of Raven."""
    logits = (x @ control.router.weight.T).view(len(x), -1, M)
    exponent = logits.sigmoid() * is_routed(control, logits)
    return gated(control, k, v, x, exponent.unsqueeze(3))


def gated(control, k, v, x, exponent=1.0):
    """The recurrence of gated slot attention."""
    gates = torch.sigmoid(x @ control.proj.weight.T.double() + control.proj.bias.double())
    gates = gates.pow(1 / 16).view(len(x), -1, M, 1) ** exponent
    keys, values = torch.zeros(H, M, D).double(), torch.zeros(H, M, D).double()
    for t in range(k.shape[1]):
        keys = gates[t] * keys + (1 - gates[t]) * k[:, t, None]
        values = gates[t] * values + (1 - gates[t]) * v[:, t, None]
        yield keys, values, torch.ones(H, M, dtype=torch.bool)


def means_of(clusters, k, v):
    """The memory of clusters: for each head and slot a list of tokens."""
    memory = torch.zeros(2, H, M, D).double()
    for h, head in enumerate(clusters):
        for m, members in enumerate(head):
            if members:
                memory[:, h, m] = torch.stack([k[h, members].mean(0), v[h, members].mean(0)])
    written = torch.tensor([[bool(members) for members in head] for head in clusters])
    return memory[0], memory[1], written


def bits(control, key):
    """On which side of each plane a key is, or without planes the key itself."""
    if control.planes is None:
        return key
    return (torch.cat([key, key.new_ones(1)]) @ control.planes.T > 0).double()


def nearest(key, means):
    """By the Euclidean distance, which of bits is the root of the Hamming distance."""
    distances = [(key - mean).square().sum().item() for mean in means]
    return distances.index(min(distances))


def clustering(control, k, v, x):
    """Section 3.2, online: the nearest running centroid, once every slot has a token."""
    clusters: list[list[list[int]]] = [[[] for _ in range(M)] for _ in range(H)]
    for t in range(k.shape[1]):
        for h in range(H):
            means = [bits(control, k[h, own].mean(0)) for own in clusters[h] if own]
            slot = len(means) if len(means) < M else nearest(bits(control, k[h, t]), means)
            clusters[h][slot].append(t)
        yield means_of(clusters, k, v)


def k_means(control, k, v, x):
    """Section 3.2 over the whole sentence: Lloyd's algorithm from keys that are far apart."""
    clusters = []
    for head in k:
        keys = torch.stack([bits(control, key) for key in head])
        means = [keys[0]]
        while len(means) < M:
            gaps = [min((key - mean).square().sum().item() for mean in means) for key in keys]
            means.append(keys[gaps.index(max(gaps))])
        for _ in range(11):
            slots = [nearest(key, means) for key in keys]
            members = [[t for t, slot in enumerate(slots) if slot == m] for m in range(M)]
            means = [keys[own].mean(0) if own else means[m] for m, own in enumerate(members)]
            if control.planes is not None:  # the bits that most members have
                means = [(mean > 0.5).double() for mean in means]
        clusters.append(members)
    yield means_of(clusters, k, v)


def workspace(control, k, v, x):
    """Equation 16, with the learned memory of the lowest layer."""
    q = (control.memory @ control.q_proj.weight.T).view(M, control.heads, -1).transpose(0, 1)
    keys = (x @ control.k_proj.weight.T).view(len(x), control.heads, -1).transpose(0, 1)
    phi = (q @ keys.transpose(1, 2) * keys.shape[2] ** -0.5).softmax(dim=2)
    yield phi @ k, phi @ v, torch.ones(H, M, dtype=torch.bool)


def queue(pushes):
    """Table 1's sliding window, with the upper shift matrix, for the tokens that are pushed."""
    shift = torch.diag(torch.ones(M - 1), 1).double()
    newest = torch.eye(M).double()[M - 1]

    def memories(control, k, v, x):
        queues = {}
        for t in range(k.shape[1]):
            name, pushed = pushes(t)
            keys, values, count = queues.get(name, (torch.zeros(H, M, D).double(),) * 2 + (0,))
            if pushed:
                keys = shift @ keys + newest[:, None] * k[:, t, None]
                values = shift @ values + newest[:, None] * v[:, t, None]
                count += 1
            queues[name] = keys, values, count
            yield keys, values, (torch.arange(M) >= M - count).expand(H, M)

    return memories


QUEUES = {
    "window": queue(lambda t: ("all", True)),
    "dilated": queue(lambda t: (t % STRIDE, True)),  # a queue for each phase (appendix A.4)
    "strided": queue(lambda t: ("all", t % STRIDE == 0)),
}


def local_global(control, k, v, x):
    """A slot for each global token, and the last two tokens, in any order."""
    for t in range(k.shape[1]):
        places = [place for place in GLOBAL if place <= t]
        places += [place for place in (t - 1, t) if place >= 0 and place not in places]
        keys, values = torch.zeros(H, 4, D).double(), torch.zeros(H, 4, D).double()
        keys[:, : len(places)], values[:, : len(places)] = k[:, places], v[:, places]
        yield keys, values, (torch.arange(4) < len(places)).expand(H, 4)


MEMORIES = (
    QUEUES
    | {"mlp": mlp, "gated": gated, "clustering": clustering, "local_global": local_global}
    | {"routed": routed, "routed_gated": routed_gated}
    | {name: additive(name) for name in ADDITIVE}
)
# Of a whole sentence, where that is not the memory after the last token.
WHOLE = {"clustering": k_means, "workspace": workspace}


def read(q, keys, values, written):
    """Equation 4 for one query of every head. q: (H, D)."""
    logits = torch.einsum("hmd,hd->hm", keys, q) * D**-0.5
    reading = logits.masked_fill(~written, -torch.inf).softmax(-1).nan_to_num()
    return torch.einsum("hm,hmd->hd", reading, values)


def recurrence(control, name, q, k, v, x, mask, *, causal):
    """Attention by the memories of `MEMORIES` and `WHOLE`: (B, H, T, D), zero at padding if causal.

    q: (B, H, T, D); k, v: (B, H, S, D); x: (B, S, E); mask: (B, S), True at padding, or None
    """
    out = torch.zeros_like(q)
    memory_of = MEMORIES[name] if causal or name not in WHOLE else WHOLE[name]
    for b in range(len(q)):
        real = torch.ones(k.shape[2], dtype=torch.bool) if mask is None else ~mask[b]
        if not real.any():
            continue
        memories = list(memory_of(control, k[b][:, real], v[b][:, real], x[b, real]))
        places = real.nonzero().flatten().tolist() if causal else range(q.shape[2])
        for place, t in enumerate(places):
            out[b, :, t] = read(q[b, :, t], *memories[place if causal else -1])
    return out


def centred_window(control, name, q, k, v, mask):
    """Encoder attention of the windows: each query sees the tokens around it."""
    seen_by_all = torch.zeros(k.shape[0], k.shape[2], dtype=torch.bool)
    if name == "local_global":
        for b, row in enumerate(seen_by_all):
            tokens = range(len(row)) if mask is None else (~mask[b]).nonzero().flatten().tolist()
            row[[tokens[place] for place in GLOBAL if place < len(tokens)]] = True
    return window_naive.window_attention(
        q, k, v, control.window, causal=False, key_padding_mask=mask, global_mask=seen_by_all
    )


def elu_features(control, x):
    """Katharopoulos et al. (2020), equation 7."""
    return elu(x) + 1


def rfa_features(control, x):
    """Peng et al. (2021), theorem 1."""
    w = control.features.sigma * control.features.bank[:H]
    angles = normalize(x, dim=-1) @ w.transpose(1, 2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1) * w.shape[1] ** -0.5


def t2r_features(control, x):
    """Kasai et al. (2021)."""
    weight, bias = control.features.weight, control.features.bias
    return (x @ weight.transpose(1, 2) + bias.unsqueeze(1)).relu()


FEATURES = {"elu": elu_features, "rfa": rfa_features, "t2r": t2r_features}


def kernel(control, name, q, k, v, x, mask, *, causal):
    log_gate = None
    if causal and control.gate is not None:
        log_gate = control.gate.proj(x).sigmoid().log().transpose(1, 2)
    return kernel_naive.kernel_attention(
        *(FEATURES[name](control, q), FEATURES[name](control, k), v, log_gate),
        causal=causal,
        key_padding_mask=mask,
        floor=control.features.floor,
    )


def spill(control, q, k, v, mask, turn, *, causal):
    kind = "causal" if causal else "encoder" if control.is_centred else "cross"
    log_alpha = k.new_zeros(*k.shape[:3], 0)
    if control.places.slots:
        log_alpha = torch.einsum("bhsd,hmd->bhsm", k, control.weight)
    return spill_naive.spill_attention(
        *(q, k, v, control.places, log_alpha, control.bias, turn), kind=kind, key_padding_mask=mask
    )


def attend(control, name, q, k, v, x, mask, *, causal, turn=None):
    """Attention with any control, from its definition. turn: by a position, if it `rotates`."""
    if control.rotates:
        return spill(control, q, k, v, mask, turn, causal=causal)
    if name in FEATURES:
        return kernel(control, name, q, k, v, x, mask, causal=causal)
    if control.is_centred and not causal:
        return centred_window(control, name, q, k, v, mask)
    return recurrence(control, name, q, k, v, x, mask, causal=causal)
