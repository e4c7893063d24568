MEMORY(none)
MEMORY(user)
MEMORY(periodic)
MEMORY(boundary)
