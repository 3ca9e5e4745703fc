package script

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// Lua's patterns, matched with backtracking that is paid for step by step.

const (
	maxCaptures  = 32
	maxMatchDeep = 200
	captureOpen  = -1
	capturePlace = -2
)

type matcher struct {
	L        *lua.LState
	src, pat string
	level    int
	deep     int
	unpaid   int
	captures [maxCaptures]struct{ at, size int }
}

// matchAt gives the end of a match that begins at s, or -1.
func (m *matcher) matchAt(s, p int) int {
	if m.deep++; m.deep > maxMatchDeep {
		m.L.RaiseError("the pattern is too complex")
	}
	defer func() { m.deep-- }()
	for {
		m.step()
		if p == len(m.pat) {
			return s
		}
		switch m.pat[p] {
		case '(':
			if p+1 < len(m.pat) && m.pat[p+1] == ')' {
				return m.open(s, p+2, capturePlace)
			}
			return m.open(s, p+1, captureOpen)
		case ')':
			return m.close(s, p+1)
		case '$':
			if p+1 == len(m.pat) {
				if s == len(m.src) {
					return s
				}
				return -1
			}
		case '%':
			if p+1 < len(m.pat) {
				switch c := m.pat[p+1]; {
				case c == 'b':
					if s = m.balance(s, p+2); s < 0 {
						return -1
					}
					p += 4
					continue
				case c == 'f':
					next, ok := m.frontier(s, p+2)
					if !ok {
						return -1
					}
					p = next
					continue
				case c >= '0' && c <= '9':
					if s = m.again(s, c); s < 0 {
						return -1
					}
					p += 2
					continue
				}
			}
		}
		end := m.classEnd(p)
		var suffix byte
		if end < len(m.pat) {
			suffix = m.pat[end]
		}
		switch suffix {
		case '?':
			if m.single(s, p, end) {
				if e := m.matchAt(s+1, end+1); e >= 0 {
					return e
				}
			}
			p = end + 1
		case '+':
			if !m.single(s, p, end) {
				return -1
			}
			return m.most(s+1, p, end)
		case '*':
			return m.most(s, p, end)
		case '-':
			return m.least(s, p, end)
		default:
			if !m.single(s, p, end) {
				return -1
			}
			s, p = s+1, end
		}
	}
}

// step is paid in sums.
func (m *matcher) step() {
	if m.unpaid++; m.unpaid >= 16 {
		m.unpaid = 0
		charge(m.L, 8, 0)
	}
}

func (m *matcher) most(s, p, end int) int {
	n := 0
	for m.single(s+n, p, end) {
		m.step()
		n++
	}
	for ; n >= 0; n-- {
		if e := m.matchAt(s+n, end+1); e >= 0 {
			return e
		}
	}
	return -1
}

func (m *matcher) least(s, p, end int) int {
	for {
		if e := m.matchAt(s, end+1); e >= 0 {
			return e
		}
		if !m.single(s, p, end) {
			return -1
		}
		m.step()
		s++
	}
}

func (m *matcher) open(s, p, what int) int {
	if m.level >= maxCaptures {
		m.L.RaiseError("the pattern has too many captures")
	}
	m.captures[m.level].at, m.captures[m.level].size = s, what
	m.level++
	e := m.matchAt(s, p)
	if e < 0 {
		m.level--
	}
	return e
}

func (m *matcher) close(s, p int) int {
	for l := m.level - 1; l >= 0; l-- {
		if m.captures[l].size == captureOpen {
			m.captures[l].size = s - m.captures[l].at
			e := m.matchAt(s, p)
			if e < 0 {
				m.captures[l].size = captureOpen
			}
			return e
		}
	}
	m.L.RaiseError("the pattern closes a capture that it does not open")
	return -1
}

func (m *matcher) balance(s, p int) int {
	if p+1 >= len(m.pat) {
		m.L.RaiseError("the pattern has a %%b that lacks its two characters")
	}
	if s >= len(m.src) || m.src[s] != m.pat[p] {
		return -1
	}
	for depth, i := 1, s+1; i < len(m.src); i++ {
		m.step()
		switch m.src[i] {
		case m.pat[p+1]:
			if depth--; depth == 0 {
				return i + 1
			}
		case m.pat[p]:
			depth++
		}
	}
	return -1
}

func (m *matcher) frontier(s, p int) (next int, ok bool) {
	if p >= len(m.pat) || m.pat[p] != '[' {
		m.L.RaiseError("the pattern has a %%f that lacks its [set]")
	}
	end := m.classEnd(p)
	var before, here byte
	if s > 0 {
		before = m.src[s-1]
	}
	if s < len(m.src) {
		here = m.src[s]
	}
	return end, !m.inSet(before, p, end-1) && m.inSet(here, p, end-1)
}

func (m *matcher) again(s int, c byte) int {
	l := int(c - '1')
	if l < 0 || l >= m.level || m.captures[l].size < 0 {
		m.L.RaiseError("the pattern has %%%c, and no such capture before it", c)
	}
	part := m.src[m.captures[l].at : m.captures[l].at+m.captures[l].size]
	chargeText(m.L, len(part))
	if strings.HasPrefix(m.src[s:], part) {
		return s + len(part)
	}
	return -1
}

// classEnd of what matches one character.
func (m *matcher) classEnd(p int) int {
	c := m.pat[p]
	p++
	switch c {
	case '%':
		if p >= len(m.pat) {
			m.L.RaiseError("the pattern ends with %%")
		}
		return p + 1
	case '[':
		if p < len(m.pat) && m.pat[p] == '^' {
			p++
		}
		for first := true; first || p >= len(m.pat) || m.pat[p] != ']'; first = false {
			if p >= len(m.pat) {
				m.L.RaiseError("the pattern has a [ without ]")
			}
			m.step()
			if p++; m.pat[p-1] == '%' {
				p++
			}
		}
		return p + 1
	}
	return p
}

func (m *matcher) single(s, p, end int) bool {
	if s >= len(m.src) {
		return false
	}
	c := m.src[s]
	switch m.pat[p] {
	case '.':
		return true
	case '%':
		return inClass(c, m.pat[p+1])
	case '[':
		return m.inSet(c, p, end-1)
	}
	return m.pat[p] == c
}

// inSet: p is at [, last at ].
func (m *matcher) inSet(c byte, p, last int) bool {
	is := true
	if p++; m.pat[p] == '^' {
		is = false
		p++
	}
	for ; p < last; p++ {
		m.step()
		switch {
		case m.pat[p] == '%':
			if p++; inClass(c, m.pat[p]) {
				return is
			}
		case p+2 < last && m.pat[p+1] == '-':
			if m.pat[p] <= c && c <= m.pat[p+2] {
				return is
			}
			p += 2
		case m.pat[p] == c:
			return is
		}
	}
	return !is
}

func inClass(c, class byte) bool {
	lower, upper := 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z'
	digit := '0' <= c && c <= '9'
	var is bool
	switch class | 0x20 {
	case 'a':
		is = lower || upper
	case 'c':
		is = c < 0x20 || c == 0x7f
	case 'd':
		is = digit
	case 'l':
		is = lower
	case 'p':
		is = c > 0x20 && c < 0x7f && !lower && !upper && !digit
	case 's':
		is = c == ' ' || '\t' <= c && c <= '\r'
	case 'u':
		is = upper
	case 'w':
		is = lower || upper || digit
	case 'x':
		is = digit || 'a' <= c|0x20 && c|0x20 <= 'f'
	case 'z':
		is = c == 0
	default:
		return class == c
	}
	if 'A' <= class && class <= 'Z' {
		return !is
	}
	if 'a' <= class && class <= 'z' {
		return is
	}
	return class == c
}

// pushCaptures of a match from s to e; all of it where there are none and whole is true.
func (m *matcher) pushCaptures(s, e int, whole bool) int {
	if m.level == 0 && whole {
		return pushText(m.L, m.src[s:e])
	}
	for l := range m.level {
		m.pushCapture(l)
	}
	return m.level
}

func (m *matcher) pushCapture(l int) {
	c := m.captures[l]
	switch c.size {
	case captureOpen:
		m.L.RaiseError("the pattern has a capture that it does not close")
	case capturePlace:
		m.L.Push(lua.LNumber(c.at + 1))
	default:
		pushText(m.L, m.src[c.at:c.at+c.size])
	}
}
