"""The models in transformers' format: `import fairseq_memattn.transformers` registers them.

After it, the Auto classes of transformers load a folder that `memattn export` wrote:
`AutoModelForCausalLM.from_pretrained(FOLDER)`. fairseq is not needed.
"""
