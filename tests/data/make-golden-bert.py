#!/usr/bin/env python3
"""Writes tests/data/models/bert.safetensors and bert-pre.safetensors: what PyTorch computes for small BERTs.

usage: make-golden-bert.py OUTDIR

Run once with torch, transformers and safetensors, and commit the result; the tests need no Python. bert is Hugging Face's
BertForMaskedLM with all its weights under its names; bert-pre is built of the same modules in Megatron-LM's order (Shoeybi et
al., arXiv:1909.08053, figure 7b: norms inside the residual branches, one more behind the last block, none behind the
embeddings). Beside the weights: an input of tokens and kinds, the output, the gradient that is sent back from it
(golden.dy) and what it becomes at every parameter (golden.grad.NAME)."""
import sys
import torch
import transformers
from safetensors.torch import save_file

LAYERS, WIDTH, HEADS, INNER, VOCAB, T, BATCH = 3, 16, 2, 40, 50, 12, 2


class Pre(torch.nn.Module):
	"""BertForMaskedLM's modules with the norms in the branches."""
	def __init__(self, whole):
		super().__init__()
		self.bert, self.cls = whole.bert, whole.cls
		self.bert.encoder.LayerNorm = torch.nn.LayerNorm(WIDTH, eps=1e-12)
		del self.bert.embeddings.LayerNorm

	def block(self, layer, x):
		at = layer.attention
		h = at.output.LayerNorm(x)
		q, k, v = (w(h).reshape(BATCH, T, HEADS, -1).transpose(1, 2) for w in (at.self.query, at.self.key, at.self.value))
		y = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(BATCH, T, WIDTH)
		x = x + at.output.dense(y)
		return x + layer.output.dense(torch.nn.functional.gelu(layer.intermediate.dense(layer.output.LayerNorm(x))))

	def forward(self, ids, kinds):
		e = self.bert.embeddings
		x = e.word_embeddings(ids) + e.position_embeddings.weight[:T] + e.token_type_embeddings(kinds)
		for layer in self.bert.encoder.layer:
			x = self.block(layer, x)
		return self.cls(self.bert.encoder.LayerNorm(x))


def write(name, pre):
	torch.manual_seed(1)
	conf = transformers.BertConfig(vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
		intermediate_size=INNER, max_position_embeddings=24, type_vocab_size=2)
	m = transformers.BertForMaskedLM(conf)
	m = (Pre(m) if pre else m).double().eval()
	for p in m.parameters():        # larger than the initial ones, so that every part counts
		p.data.add_(torch.randn_like(p) * 0.2)
		p.data = p.data.float().double()
	# Not 0: that is padding there, whose row gets no gradient.
	ids = torch.tensor([[1 + (5 * i + b) % (VOCAB - 1) for i in range(T)] for b in range(BATCH)])
	kinds = torch.tensor([[int(i > 6 + b) for i in range(T)] for b in range(BATCH)])
	logits = m(ids, kinds) if pre else m(ids, token_type_ids=kinds).logits
	dy = torch.sin(0.37 * torch.arange(logits.numel(), dtype=torch.float64) + 0.9).reshape(logits.shape)
	logits.backward(dy)
	skip = ("position_ids", "decoder.weight", "decoder.bias")
	params = {k: p for k, p in m.named_parameters() if not k.endswith(skip)}
	state = {k: p.detach() for k, p in params.items()}
	state.update({"golden.grad." + k: p.grad for k, p in params.items()})
	state["golden.input"] = torch.stack([ids, kinds], 1)
	state["golden.output"], state["golden.dy"] = logits.detach(), dy
	save_file({k: v.float().contiguous().clone() for k, v in state.items()}, sys.argv[1] + "/" + name + ".safetensors")


write("bert", False)
write("bert-pre", True)
