LOSS(bce_with_logits)
LOSS(cross_entropy)
LOSS(mse)
LOSS(parts)
