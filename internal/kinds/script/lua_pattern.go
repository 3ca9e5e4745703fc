package script

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// Lua's patterns. Backtracking is charged step by step.

const (
	maxCaptures   = 32
	maxMatchDepth = 200
	captureOpen   = -1
	capturePlace  = -2
)

type patternMatcher struct {
	L              *lua.LState
	src, pat       string
	openCaptures   int
	depth          int
	unchargedSteps int
	captures       [maxCaptures]struct{ at, size int }
}

// matchAt returns the end of a match that begins at s, or -1.
func (m *patternMatcher) matchAt(s, p int) int {
	if m.depth++; m.depth > maxMatchDepth {
		m.L.RaiseError("the pattern is too complex")
	}
	defer func() { m.depth-- }()
	for {
		m.countStep()
		if p == len(m.pat) {
			return s
		}
		switch m.pat[p] {
		case '(':
			if p+1 < len(m.pat) && m.pat[p+1] == ')' {
				return m.openCapture(s, p+2, capturePlace)
			}
			return m.openCapture(s, p+1, captureOpen)
		case ')':
			return m.closeCapture(s, p+1)
		}
		end, next, special := m.matchSpecial(s, p)
		if !special {
			var done bool
			if end, next, done = m.matchItem(s, p); done {
				return end
			}
		}
		if end < 0 {
			return -1
		}
		s, p = end, next
	}
}

// matchSpecial matches $, %b, %f and back references; ok is false for all else. end is -1
// where the text does not match, and next is the rest of the pattern.
func (m *patternMatcher) matchSpecial(s, p int) (end, next int, ok bool) {
	if m.pat[p] == '$' && p+1 == len(m.pat) {
		if s == len(m.src) {
			return s, p + 1, true
		}
		return -1, 0, true
	}
	if m.pat[p] != '%' || p+1 == len(m.pat) {
		return 0, 0, false
	}
	switch c := m.pat[p+1]; {
	case c == 'b':
		return m.matchBalanced(s, p+2), p + 4, true
	case c == 'f':
		after, matches := m.matchFrontier(s, p+2)
		if !matches {
			return -1, 0, true
		}
		return s, after, true
	case c >= '0' && c <= '9':
		return m.matchBackReference(s, c), p + 2, true
	}
	return 0, 0, false
}

// matchItem matches what stands for one character, and its suffix. done means that end is the
// result for the whole rest of the pattern.
func (m *patternMatcher) matchItem(s, p int) (end, next int, done bool) {
	after := m.classEnd(p)
	var suffix byte
	if after < len(m.pat) {
		suffix = m.pat[after]
	}
	switch suffix {
	case '*':
		return m.matchGreedy(s, p, after), 0, true
	case '-':
		return m.matchLazy(s, p, after), 0, true
	}
	matches := m.matchesSingle(s, p, after)
	switch {
	case suffix == '?':
		if matches {
			if e := m.matchAt(s+1, after+1); e >= 0 {
				return e, 0, true
			}
		}
		return s, after + 1, false
	case !matches:
		return -1, 0, true
	case suffix == '+':
		return m.matchGreedy(s+1, p, after), 0, true
	}
	return s + 1, after, false
}

// countStep charges steps in sums of 16.
func (m *patternMatcher) countStep() {
	if m.unchargedSteps++; m.unchargedSteps >= 16 {
		m.unchargedSteps = 0
		chargeCost(m.L, 8, 0)
	}
}

func (m *patternMatcher) matchGreedy(s, p, end int) int {
	n := 0
	for m.matchesSingle(s+n, p, end) {
		m.countStep()
		n++
	}
	for ; n >= 0; n-- {
		if e := m.matchAt(s+n, end+1); e >= 0 {
			return e
		}
	}
	return -1
}

func (m *patternMatcher) matchLazy(s, p, end int) int {
	for {
		if e := m.matchAt(s, end+1); e >= 0 {
			return e
		}
		if !m.matchesSingle(s, p, end) {
			return -1
		}
		m.countStep()
		s++
	}
}

func (m *patternMatcher) openCapture(s, p, what int) int {
	if m.openCaptures >= maxCaptures {
		m.L.RaiseError("the pattern has too many captures")
	}
	m.captures[m.openCaptures].at, m.captures[m.openCaptures].size = s, what
	m.openCaptures++
	e := m.matchAt(s, p)
	if e < 0 {
		m.openCaptures--
	}
	return e
}

func (m *patternMatcher) closeCapture(s, p int) int {
	for l := m.openCaptures - 1; l >= 0; l-- {
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

func (m *patternMatcher) matchBalanced(s, p int) int {
	if p+1 >= len(m.pat) {
		m.L.RaiseError("the pattern has a %%b that lacks its two characters")
	}
	if s >= len(m.src) || m.src[s] != m.pat[p] {
		return -1
	}
	for depth, i := 1, s+1; i < len(m.src); i++ {
		m.countStep()
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

func (m *patternMatcher) matchFrontier(s, p int) (next int, ok bool) {
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

func (m *patternMatcher) matchBackReference(s int, c byte) int {
	l := int(c - '1')
	if l < 0 || l >= m.openCaptures || m.captures[l].size < 0 {
		m.L.RaiseError("the pattern has %%%c, and no such capture before it", c)
	}
	part := m.src[m.captures[l].at : m.captures[l].at+m.captures[l].size]
	chargeString(m.L, len(part))
	if strings.HasPrefix(m.src[s:], part) {
		return s + len(part)
	}
	return -1
}

// classEnd returns the end of what stands for one character in the pattern.
func (m *patternMatcher) classEnd(p int) int {
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
			m.countStep()
			if p++; m.pat[p-1] == '%' {
				p++
			}
		}
		return p + 1
	}
	return p
}

func (m *patternMatcher) matchesSingle(s, p, end int) bool {
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

// inSet reports whether a set matches c; p is at [, last at ].
func (m *patternMatcher) inSet(c byte, p, last int) bool {
	is := true
	if p++; m.pat[p] == '^' {
		is = false
		p++
	}
	for ; p < last; p++ {
		m.countStep()
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

// characterClasses by their lower-case letter.
var characterClasses = [...]func(c byte) bool{
	'a': isLetter,
	'c': func(c byte) bool { return c < 0x20 || c == 0x7f },
	'd': isDigit,
	'l': func(c byte) bool { return 'a' <= c && c <= 'z' },
	'p': func(c byte) bool { return c > 0x20 && c < 0x7f && !isLetter(c) && !isDigit(c) },
	's': func(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' },
	'u': func(c byte) bool { return 'A' <= c && c <= 'Z' },
	'w': func(c byte) bool { return isLetter(c) || isDigit(c) },
	'x': func(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' },
	'z': func(c byte) bool { return c == 0 },
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

// inClass reports whether %class matches c. An upper-case class is the complement, and what is
// no class matches itself.
func inClass(c, class byte) bool {
	lower := int(class | 0x20)
	if !isLetter(class) || lower >= len(characterClasses) || characterClasses[lower] == nil {
		return class == c
	}
	return characterClasses[lower](c) == ('a' <= class)
}

// pushCaptures pushes the captures of a match from s to e and returns their number. Without
// captures it pushes the whole match where whole is true.
func (m *patternMatcher) pushCaptures(s, e int, whole bool) int {
	if m.openCaptures == 0 && whole {
		return pushString(m.L, m.src[s:e])
	}
	for l := range m.openCaptures {
		m.pushCapture(l)
	}
	return m.openCaptures
}

func (m *patternMatcher) pushCapture(l int) {
	c := m.captures[l]
	switch c.size {
	case captureOpen:
		m.L.RaiseError("the pattern has a capture that it does not close")
	case capturePlace:
		m.L.Push(lua.LNumber(c.at + 1))
	default:
		pushString(m.L, m.src[c.at:c.at+c.size])
	}
}
