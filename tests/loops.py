#!/usr/bin/env python3
"""Files that call each other in a loop: for every room (folder of daemon/) its loops, the largest first, as strongly
connected components of the calls between its .c files.

usage: tests/loops.py [--why] [--root DIR]       --why: each call between two files of a loop, too
Whoever names a function of another file calls it: by a call, in the initialiser of a table, or to hand it on. Whoever
calls through a pointer calls every function that can be in it: pointers are members of structs, parameters and local
variables, and what flows from one into another is followed (designated and positional initialisers, assignments,
arguments). Two objects of one struct are not told apart. Macros and inline functions of headers are calls of whoever uses
them. A call through a member of a struct that cannot be made out goes to all members of that name. The files of
daemon/control/cmd carry loops but do not count. tests/loops says how large a loop may be: tests/tidy holds it against
that."""
import os
import re
import sys

TOKEN = re.compile(r'[A-Za-z_]\w*|\.?\d[\w.]*|->|\.\.\.|==|!=|<=|>=|&&|\|\||[-+*/%&|^<>]=|\+\+|--|<<|>>|"|\S')
TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
MACRO = re.compile(r'#\s*define\s+(\w+)(\([^)]*\))?(.*)')
ATTRIBUTE = re.compile(r'__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)')
NAME = re.compile(r'[A-Za-z_]\w*$')
WORDS = set('if while for switch return sizeof do else case default goto break continue'.split())
TYPES = set('struct union enum const static extern inline volatile unsigned signed void int char bool float double long '
	'short'.split())
PAIR = {'(': ')', '[': ']', '{': '}'}
COMMANDS = 'daemon/control/cmd/'        # reached through one table: not counted, or every new one would enlarge the loop


def is_name(t):
	return NAME.match(t) is not None and t not in WORDS and t not in TYPES


def plain(text):
	"""Tokens of a file, and its macros as (name, tokens): comments are gone, strings are one quote."""
	text = TEXT.sub(lambda m: ' ' if m.group(0)[0] == '/' else '"' if m.group(0)[0] == '"' else '0', text)
	text = ATTRIBUTE.sub(' ', text.replace('\\\n', ' '))
	code, macros = [], []
	for line in text.split('\n'):
		if line.lstrip().startswith('#'):
			m = MACRO.match(line.lstrip())
			if m:
				macros.append((m.group(1), TOKEN.findall(m.group(3))))
		else:
			code.append(line)
	return TOKEN.findall('\n'.join(code)), macros


class Code:
	"""Tokens with their brackets matched."""
	def __init__(self, tokens):
		self.t, self.end, self.begin = tokens, {}, {}
		stack = []
		for i, t in enumerate(tokens):
			if t in PAIR:
				stack.append(i)
			elif t in ')]}' and stack and PAIR[tokens[stack[-1]]] == t:
				self.end[stack[-1]] = i
				self.begin[i] = stack.pop()

	def at(self, i):
		return self.t[i] if 0 <= i < len(self.t) else ''

	def split(self, a, b, by=','):
		"""Ranges between a and b, parted by what is in no bracket."""
		out, first, i = [], a, a
		while i < b:
			if self.t[i] == by:
				out.append((first, i))
				first = i + 1
			i = self.end.get(i, i) + 1
		return out + [(first, b)] if first < b else out


class Func:
	"""A body: .c file or header, what its variables are, which of them are pointers to functions."""
	def __init__(self, path, name, node, body):
		self.path, self.name, self.node, self.body = path, name, node, body
		self.params, self.types, self.pointers, self.locals = [], {}, set(), set()


class Tree:
	def __init__(self, sources):
		self.structs, self.functions, self.static, self.inline, self.macros = {}, {}, {}, {}, {}
		self.returns, self.fn_types, self.bodies, self.inits = {}, set(), [], []
		self.global_types, self.global_pointers = {}, {}
		self.holds, self.flows, self.handed, self.calls, self.edges = {}, {}, [], {}, {}
		parsed = [(path, *plain(text)) for path, text in sorted(sources.items()) if path.endswith(('.c', '.h'))]
		self.part(parsed)
		for _, tokens, _ in parsed:
			self.fn_types.update(self.typedefs(tokens))
		for path, tokens, macros in parsed:
			self.top(path, Code(tokens))
			for name, body in macros:
				self.macro(path, name, body)
		for f in self.bodies:
			self.declared(f)
		for f, code, a, b in self.inits:
			self.declare(f, code, a, b)
		self.by_member = {}
		for s, members in self.structs.items():
			for m, kind in members.items():
				self.by_member.setdefault(m, []).append((s, kind))
		for f in self.bodies:
			self.scan(f)
		self.settle()

	@staticmethod
	def part(parsed):
		"""Structs of one name in several files are several: those of .c files get a number."""
		where = {}
		for n, (path, tokens, _) in enumerate(parsed):
			for i, t in enumerate(tokens[:-2]):
				if t == 'struct' and tokens[i + 2] == '{':
					where.setdefault(tokens[i + 1], set()).add(n)
		for name, files in where.items():
			for n in files if len(files) > 1 else ():
				path, tokens, _ = parsed[n]
				for i, t in enumerate(tokens[:-1]):
					if t == 'struct' and tokens[i + 1] == name and path.endswith('.c'):
						tokens[i + 1] = f'{name}__{n}'

	@staticmethod
	def typedefs(tokens):
		for i, t in enumerate(tokens):
			if t == 'typedef' and '(' in tokens[i:i + 12]:
				yield tokens[tokens.index('(', i) - 1]

	# ---- what there is

	def top(self, path, code):
		"""Everything outside functions: structs, functions, tables."""
		i = first = 0
		while i < len(code.t):
			t = code.t[i]
			if t == ';':
				self.item(path, code, first, i)
				first = i + 1
			elif t == '{' and code.at(i - 1) == ')' and '=' not in code.t[first:i]:
				self.function(path, code, first, i)
				first = code.end.get(i, i) + 1
			i = code.end.get(i, i) + 1

	def item(self, path, code, a, b):
		for i in range(a, b):
			if code.t[i] in ('struct', 'union') and code.at(i + 2) == '{' and i + 2 in code.end:
				self.members(code.t[i + 1], code, i + 3, code.end[i + 2])
				break
		if '=' in code.t[a:b]:
			f = Func(path, '', path, (code, a, b))
			self.bodies.append(f)
			self.inits.append((self.globals_of(path), code, a, b))
			return
		paren = next((i for i in range(a, b) if code.t[i] == '('), None)
		if paren and is_name(code.t[paren - 1]):
			self.returned(code, a, paren - 1)

	def globals_of(self, path):
		if path not in self.global_types:
			self.global_types[path] = Func(path, '', path, None)
		return self.global_types[path]

	def returned(self, code, a, name):
		for i in range(a, name):
			if code.t[i] == 'struct':
				self.returns[code.t[name]] = code.t[i + 1]

	def members(self, s, code, a, b):
		"""Members in their order: name -> struct, '*' for a pointer to a function, '' for everything else."""
		out = self.structs.setdefault(s, {})
		for x, y in code.split(a, b, ';'):
			kind, i = '', x
			while i < y and code.t[i] in TYPES and code.t[i] not in ('struct', 'union', 'enum'):
				i += 1
			if i < y and code.t[i] in ('struct', 'union'):
				brace = i + 1 if code.at(i + 1) == '{' else i + 2 if code.at(i + 2) == '{' else None
				kind = code.t[i + 1] if brace != i + 1 else f'{s}.{i}'
				if brace:
					self.members(kind, code, brace + 1, code.end[brace])
					if code.end[brace] + 1 >= y:            # without a name: its members are those of s
						out.update(self.structs[kind])
						continue
					i = code.end[brace]
			elif i < y and code.t[i] in self.fn_types:
				kind = '*'
			for p, q in code.split(i, y):
				pointer = self.pointer(code, p, q)
				if pointer:
					out[pointer] = '*'
					continue
				names = [k for k in range(p, q) if is_name(code.t[k]) and code.at(k + 1) in (',', ';', '[', ':', '=', '}')]
				if names:
					out[code.t[names[0]]] = kind

	@staticmethod
	def pointer(code, a, b):
		"""The name in `(*name)(` or `(*const name[])(`."""
		for i in range(a, b - 2):
			if code.t[i] == '(' and code.at(i + 1) == '*' and i in code.end and code.at(code.end[i] + 1) == '(':
				names = [t for t in code.t[i + 2:code.end[i]] if is_name(t)]
				if names:
					return names[0]
		return None

	def function(self, path, code, a, brace):
		close = code.begin.get(brace - 1)
		if close is None or not is_name(code.at(close - 1)):
			return
		name = code.t[close - 1]
		head, header = code.t[a:close], path.endswith('.h')
		f = Func(path, name, (path, name) if header else path, (code, brace, code.end.get(brace, brace)))
		f.params = [self.param(f, code, p, q) for p, q in code.split(close + 1, brace - 1)]
		self.returned(code, a, close - 1)
		if header:
			self.inline[name] = f
		elif 'static' in head:
			self.static.setdefault(path, {})[name] = f
		else:
			self.functions[name] = f
		self.bodies.append(f)

	def param(self, f, code, a, b):
		name = self.pointer(code, a, b)
		if not name:
			names = [t for t in code.t[a:b] if is_name(t)]
			name = names[-1] if len(names) > 1 or set(code.t[a:b]) & TYPES and names else ''
		if self.pointer(code, a, b) or set(code.t[a:b]) & self.fn_types:
			f.pointers.add(name)
		f.locals.add(name)
		if 'struct' in code.t[a:b]:
			f.types[name] = code.t[code.t.index('struct', a) + 1]
		return name

	def macro(self, path, name, body):
		f = Func(path, name, (path, name) if path.endswith('.h') else path, None)
		f.body = (Code(body), 0, len(body))
		self.bodies.append(f)
		if path.endswith('.h'):
			self.macros.setdefault(name, []).append(f)

	def declared(self, f):
		code, a, b = f.body
		if f.name:
			self.declare(f, code, a, b)

	def declare(self, f, code, a, b):
		"""Variables: their struct, or that they are pointers to functions."""
		for i in range(a, b):
			t = code.t[i]
			if t == 'struct' and i + 2 < b:
				self.declarators(f, code, i + 2, b, code.t[i + 1])
			elif t in self.fn_types:
				self.declarators(f, code, i + 1, b, '*')
			elif t == '(' and code.at(i + 1) == '*':
				name = self.pointer(code, i, min(code.end.get(i, i) + 4, b))
				if name and code.at(i - 1) in TYPES | {'*'} | {'size_t', 'real'}:
					f.pointers.add(name)
			elif is_name(t) and (is_name(code.at(i - 1)) or code.at(i - 1) in TYPES or code.at(i - 1) == '*') and (
					code.at(i + 1) in ('=', ',', ';', '[')):
				f.locals.add(t)

	@staticmethod
	def declarators(f, code, i, b, kind):
		while i < b:
			while code.at(i) in ('*', 'const'):
				i += 1
			if not is_name(code.at(i)) or code.at(i + 1) not in ('=', ',', ';', '[', ')'):
				return
			name = code.t[i]
			f.locals.add(name)
			if kind == '*':
				f.pointers.add(name)
			else:
				f.types[name] = kind
			i += 1
			while i < b and code.t[i] not in (',', ';', ')'):
				i = code.end.get(i, i) + 1
			if code.at(i) != ',':
				return
			i += 1

	# ---- who calls whom

	def find(self, path, name):
		return self.static.get(path, {}).get(name) or self.functions.get(name) or self.inline.get(name)

	def struct_of(self, f, code, i):
		"""The struct of the expression that ends at i; None: it cannot be made out."""
		while code.at(i) == ']' and i in code.begin:
			i = code.begin[i] - 1
		t = code.at(i)
		if t == ')' and i in code.begin:
			j = code.begin[i]
			if code.at(j - 1) in ('container_of', 'list_entry'):
				x, _ = code.split(j + 1, i)[1]
				return code.at(x + 1)
			if is_name(code.at(j - 1)):
				return self.returns.get(code.t[j - 1]) if code.at(j - 2) not in ('->', '.') else None
			casts = [k for k in range(j, i) if code.t[k] == 'struct']
			return code.t[casts[0] + 1] if casts else self.struct_of(f, code, i - 1)
		if not is_name(t):
			return None
		if code.at(i - 1) not in ('->', '.'):
			return f.types.get(t) or self.globals_of(f.path).types.get(t)
		s = self.struct_of(f, code, i - 2)
		if s in self.structs and t in self.structs[s]:
			return self.structs[s][t]
		kinds = {k for _, k in self.by_member.get(t, []) if k not in ('', '*')}
		return kinds.pop() if len(kinds) == 1 else None

	def slots(self, f, code, i):
		"""The pointers to functions that the expression that ends at i can be."""
		while code.at(i) == ']' and i in code.begin:
			i = code.begin[i] - 1
		t = code.at(i)
		if not is_name(t):
			return []
		if code.at(i - 1) not in ('->', '.'):
			if t in f.pointers:
				return [('v', f.path, f.name, t)]
			return [('v', f.path, '', t)] if t in self.globals_of(f.path).pointers and t not in f.locals else []
		s = self.struct_of(f, code, i - 2)
		if s in self.structs and t in self.structs[s]:
			return [('m', s, t)] if self.structs[s][t] == '*' else []
		return [('m', s, t) for s, kind in self.by_member.get(t, []) if kind == '*']

	def values(self, f, code, a, b):
		"""Functions and pointers to them that an expression can be."""
		while code.at(a) == '(' and code.end.get(a) == b - 1:
			a, b = a + 1, b - 1
		if code.at(a) == '(' and code.at(a + 1) in TYPES and code.end.get(a, b) < b - 1:
			a = code.end[a] + 1
		if code.at(a) == '&':
			a += 1
		parts = code.split(a, b, '?')
		if len(parts) > 1:
			return [v for x, y in parts[1:] for p, q in code.split(x, y, ':') for v in self.values(f, code, p, q)]
		if b - a == 1 and is_name(code.t[a]) and code.t[a] not in f.locals | f.pointers:
			g = self.find(f.path, code.t[a])
			if g:
				return [g]
		return self.slots(f, code, b - 1) if b > a else []

	def flow(self, values, slot):
		for v in values:
			if isinstance(v, Func):
				self.holds.setdefault(slot, set()).add(v)
			elif v != slot:
				self.flows.setdefault(v, set()).add(slot)

	def edge(self, a, b, why):
		if a != b:
			self.edges.setdefault(a, {}).setdefault(b, why)

	def scan(self, f):
		code, a, b = f.body
		i = a
		while i < b:
			t = code.t[i]
			if is_name(t) and code.at(i - 1) not in ('->', '.', 'struct', 'enum', 'union'):
				self.named(f, code, i)
			elif t == '(' and i in code.end:
				self.call(f, code, i)
			elif t == '=':
				self.assigned(f, code, i, b)
			elif t == '{' and code.at(i - 1) == ')' and i in code.end:
				self.literal(f, code, i)
			i += 1

	def named(self, f, code, i):
		t = code.t[i]
		if t in f.locals or t in f.pointers:
			return
		for m in self.macros.get(t, []):
			self.edge(f.node, m.node, t)
		g = self.find(f.path, t)
		if g and g is not f and not (code.at(i + 1) == '=' and code.at(i + 2) != '='):
			self.edge(f.node, g.node, t)

	def call(self, f, code, i):
		name = i - 1
		direct = is_name(code.at(name)) and code.at(name - 1) not in ('->', '.') and code.t[name] not in f.pointers
		args = code.split(i + 1, code.end[i])
		g = self.find(f.path, code.t[name]) if direct else None
		if g:
			for k, (x, y) in enumerate(args[:len(g.params)]):
				self.flow(self.values(f, code, x, y), ('v', g.path, g.name, g.params[k]))
			return
		for slot in self.slots(f, code, name):
			self.calls.setdefault(slot, {})[f.node] = f'{f.name}: {code.t[name]}'
			for k, (x, y) in enumerate(args):
				for v in self.values(f, code, x, y):
					self.handed.append((slot, k, v))

	def assigned(self, f, code, i, b):
		end = i + 1
		while end < b and code.t[end] not in (';', ',', ')', '}', ']'):
			end = code.end.get(end, end) + 1
		if code.at(i + 1) == '{':
			name = i - 1
			while code.at(name) == ']' and name in code.begin:
				name = code.begin[name] - 1
			array, what = name != i - 1, code.at(name)
			if what == ')' and name in code.begin:          # (*const table[])(...) = {
				what = self.pointer(code, code.begin[code.begin[name] - 1], name) if code.begin[name] - 1 in code.begin else ''
			g = self.globals_of(f.path) if not f.name else f
			if what in g.pointers:
				self.filled(f, code, i + 1, ('v', f.path, f.name, what))
			elif what in g.types and code.at(name - 1) != '.':
				self.fill(f, code, i + 1, g.types[what], array)
			return
		if code.at(i - 2) == '.' and code.at(i - 3) in ('{', ','):
			return                                          # a designator, which fill() looks at
		targets = self.slots(f, code, i - 1)
		if code.at(i - 1) == ')' and i - 1 in code.begin:       # void (*gone)(void *arg) = x->gone
			j = code.begin[i - 1] - 1
			name = self.pointer(code, code.begin.get(j, j), i) if j in code.begin else None
			targets = [('v', f.path, f.name, name)] if name else []
		if targets:
			values = self.values(f, code, i + 1, end)
			for slot in targets:
				self.flow(values, slot)

	def literal(self, f, code, brace):
		j = code.begin.get(brace - 1)
		if j is None or 'struct' not in code.t[j:brace] or code.at(j - 1) not in ('=', ',', '(', 'return', '&', '?', ':', '*'):
			return
		k = code.t.index('struct', j)
		self.fill(f, code, brace, code.t[k + 1], code.at(k + 2) == '[')

	def filled(self, f, code, brace, slot):
		for a, b in code.split(brace + 1, code.end[brace]):
			if code.at(a) == '[' and a in code.end:
				a = code.end[a] + 2
			self.flow(self.values(f, code, a, b), slot)

	def fill(self, f, code, brace, s, array):
		"""An initialiser of a struct s, or of an array of them."""
		members = self.structs.get(s, {})
		order, pos = list(members), 0
		for a, b in code.split(brace + 1, code.end.get(brace, brace)):
			if array:
				if code.at(a) == '[' and a in code.end:
					a = code.end[a] + 2
				if code.at(a) == '{':
					self.fill(f, code, a, s, False)
				continue
			within, name = s, order[pos] if pos < len(order) else None
			if code.at(a) == '.':
				name, a = code.at(a + 1), a + 2
				pos = order.index(name) if name in order else pos
				while code.at(a) == '.':
					within, name, a = self.structs.get(within, {}).get(name), code.at(a + 1), a + 2
				indexed = code.at(a) == '['
				a = code.end.get(a, a) + 2 if indexed else a + 1
			pos += 1
			kind = self.structs.get(within, {}).get(name)
			if code.at(a) == '{' and kind not in (None, '', '*'):
				self.fill(f, code, a, kind, code.at(a + 1) in ('{', '['))
			elif kind == '*':
				self.flow(self.values(f, code, a, b), ('m', within, name))

	def settle(self):
		"""What flows until nothing is new; then every call through a pointer has its ends."""
		new = list(self.holds)
		done = set()
		while new:
			slot = new.pop()
			for to in self.flows.get(slot, ()):
				if not self.holds[slot] <= self.holds.setdefault(to, set()):
					self.holds[to] |= self.holds[slot]
					new.append(to)
			if new:
				continue
			for n, (through, k, v) in enumerate(self.handed):
				for g in self.holds.get(through, ()):
					if (n, g) in done or k >= len(g.params):
						continue
					done.add((n, g))
					to = ('v', g.path, g.name, g.params[k])
					self.flow([v], to)
					new.append(to if isinstance(v, Func) else v)
					self.holds.setdefault(new[-1], set())
		for slot, callers in self.calls.items():
			for g in self.holds.get(slot, ()):
				for node, why in callers.items():
					self.edge(node, g.node, f'{why} is {g.name}')


def components(edges, nodes):
	"""Strongly connected ones (Tarjan), as lists."""
	index, low, stack, on, out = {}, {}, [], set(), []
	for root in sorted(nodes, key=str):
		if root in index:
			continue
		work = [(root, iter(sorted(edges.get(root, ()), key=str)))]
		index[root] = low[root] = len(index)
		stack.append(root)
		on.add(root)
		while work:
			v, rest = work[-1]
			w = next((x for x in rest if x in nodes and (x not in index or x in on)), None)
			if w is None:
				work.pop()
				if work:
					low[work[-1][0]] = min(low[work[-1][0]], low[v])
				if low[v] == index[v]:
					at = stack.index(v)
					out.append(stack[at:])
					on -= set(stack[at:])
					del stack[at:]
			elif w in index:
				low[v] = min(low[v], index[w])
			else:
				index[w] = low[w] = len(index)
				stack.append(w)
				on.add(w)
				work.append((w, iter(sorted(edges.get(w, ()), key=str))))
	return out


def room(path):
	parts = path.split('/')
	return parts[1] if parts[0] == 'daemon' and len(parts) > 2 else None


def loops(sources):
	"""{room: [sorted .c files of a loop, ...], the largest first}, and the tree. Every room is there."""
	sources = {p: t for p, t in sources.items() if p.startswith(('daemon/', 'common/', 'kernels/'))}
	tree = Tree(sources)
	out = {}
	shared = {n for n in set(tree.edges) | {m for e in tree.edges.values() for m in e} if isinstance(n, tuple)}
	for r in sorted({room(p) for p in sources if room(p)}):
		nodes = {p for p in sources if room(p) == r and p.endswith('.c')} | shared
		found = [sorted(n for n in c if isinstance(n, str) and not n.startswith(COMMANDS)) for c in components(tree.edges, nodes)]
		out[r] = sorted((c for c in found if len(c) > 1), key=lambda c: (-len(c), c))
	return out, tree


def main(args):
	root, why = os.path.join(os.path.dirname(os.path.realpath(__file__)), '..'), False
	while args:
		a = args.pop(0)
		if a == '--root' and args:
			root = args.pop(0)
		elif a == '--why':
			why = True
		else:
			print(__doc__, file=sys.stderr)
			return 3
	sources = {}
	for top in ('daemon', 'common', 'kernels'):
		for d, _, names in os.walk(os.path.join(root, top)):
			for n in names:
				if n.endswith(('.c', '.h')):
					with open(os.path.join(d, n), encoding='utf-8', errors='replace') as f:
						sources[os.path.relpath(os.path.join(d, n), root)] = f.read()
	found, tree = loops(sources)
	for r, cs in found.items():
		print(f'{r} {len(cs[0]) if cs else 1}')
		for c in cs:
			print('\t' + ' '.join(os.path.relpath(p, f'daemon/{r}') for p in c))
			for a in c if why else []:
				for b, what in sorted(tree.edges.get(a, {}).items(), key=str):
					if b in c:
						print(f'\t\t{a} -> {b}: {what}')
	return 0


if __name__ == '__main__':
	sys.exit(main(sys.argv[1:]))
