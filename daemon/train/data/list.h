DATA(idx)
DATA(synthetic)
