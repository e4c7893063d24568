"""What a bench that takes words by their place answers to --help, and to words that it does not take."""
import sys


def usage(text, least, most, numbers=()):
	"""text: the usage; --help prints it and ends well. From least to most words, those at `numbers` above zero; else status 2."""
	args = sys.argv[1:]
	if '--help' in args or '-h' in args:
		print(text)
		sys.exit(0)
	wrong = [f'"{a}" is no option' for a in args if a.startswith('-')]
	wrong += [f'"{args[i]}" is no number' for i in numbers if i < len(args) and not (args[i].isdecimal() and int(args[i]))]
	if wrong or not least <= len(args) <= most:
		print('\n'.join(wrong + [text]), file=sys.stderr)
		sys.exit(2)
