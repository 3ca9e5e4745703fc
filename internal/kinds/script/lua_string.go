package script

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	lua "github.com/yuin/gopher-lua"

	"atoll.dev/atoll/internal/phrase"
)

var stringLibrary = newFunctionLibrary(map[string]lua.LGFunction{
	"byte": textByte, "char": textChar, "find": textFind, "format": textFormat, "gmatch": textGmatch, "gsub": textGsub,
	"len": textLen, "lower": textLower, "match": textMatch, "rep": textRep, "reverse": textReverse, "sub": textSub, "upper": textUpper,
})

// substringBounds turns i and j of Lua into Go's bounds. Lua counts from 1, and from the end
// where they are negative.
func substringBounds(n, i, j int) (from, to int) {
	if i < 0 {
		i = max(n+i+1, 1)
	}
	if j < 0 {
		j = n + j + 1
	}
	i, j = max(i, 1), min(j, n)
	if i > j {
		return 0, 0
	}
	return i - 1, j
}

func textLen(L *lua.LState) int { return pushNumber(L, float64(len(stringArg(L, 1)))) }

func textLower(L *lua.LState) int { return mapCase(L, unicode.ToLower) }

func textUpper(L *lua.LState) int { return mapCase(L, unicode.ToUpper) }

// mapCase maps the letters of a text. Letters are Unicode's, as in gopher-lua. Bytes that are no
// UTF-8 stay unchanged. The result can grow, which is charged beforehand.
func mapCase(L *lua.LState, letter func(rune) rune) int {
	s := stringArg(L, 1)
	chargeCost(L, int64(len(s))/8, 4*int64(len(s)))
	out := make([]byte, 0, len(s))
	for i, n := 0, 0; i < len(s); i += n {
		var r rune
		if r, n = utf8.DecodeRuneInString(s[i:]); r == utf8.RuneError {
			out = append(out, s[i:i+n]...)
		} else {
			out = utf8.AppendRune(out, letter(r))
		}
	}
	return pushString(L, string(out))
}

func textSub(L *lua.LState) int {
	s := stringArg(L, 1)
	from, to := substringBounds(len(s), integerArg(L, 2, 1), integerArg(L, 3, -1))
	return pushString(L, s[from:to])
}

func textRep(L *lua.LState) int {
	s, n := stringArg(L, 1), max(0, integerArg(L, 2, 0))
	if len(s) > 0 {
		n = min(n, MaxBytes) // and then it is refused
		chargeCost(L, int64(len(s))*int64(n)/64, int64(len(s))*int64(n))
	}
	if len(s) == 0 {
		n = 0
	}
	L.Push(lua.LString(strings.Repeat(s, n)))
	return 1
}

func textReverse(L *lua.LState) int {
	b := []byte(stringArg(L, 1))
	chargeCost(L, int64(len(b))/16, int64(len(b)))
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return pushString(L, string(b))
}

func textByte(L *lua.LState) int {
	s := stringArg(L, 1)
	i := integerArg(L, 2, 1)
	from, to := substringBounds(len(s), i, integerArg(L, 3, i))
	if to-from > maxUnpack {
		L.RaiseError("string.byte of %d characters: at most %d come at once", to-from, maxUnpack)
	}
	for _, c := range []byte(s[from:to]) {
		L.Push(lua.LNumber(c))
	}
	return to - from
}

func textChar(L *lua.LState) int {
	b := make([]byte, 0, 8)
	for i := 1; i <= L.GetTop(); i++ {
		b = append(b, byte(integerArg(L, i, 0)))
	}
	return pushString(L, string(b))
}

func textFind(L *lua.LState) int { return searchPattern(L, true) }

func textMatch(L *lua.LState) int { return searchPattern(L, false) }

func searchPattern(L *lua.LState, find bool) int {
	src, pat := stringArg(L, 1), stringArg(L, 2)
	start := integerArg(L, 3, 1)
	if start < 0 {
		start = max(len(src)+start+1, 1)
	}
	if start = max(start, 1) - 1; start > len(src) {
		L.Push(lua.LNil)
		return 1
	}
	if find && (lua.LVAsBool(L.Get(4)) || !strings.ContainsAny(pat, "^$*+?.([%-")) {
		chargeCost(L, int64(len(src))/32, 0)
		if i := strings.Index(src[start:], pat); i >= 0 {
			L.Push(lua.LNumber(start + i + 1))
			L.Push(lua.LNumber(start + i + len(pat)))
			return 2
		}
		L.Push(lua.LNil)
		return 1
	}
	pat, anchored := strings.CutPrefix(pat, "^")
	m := &patternMatcher{L: L, src: src, pat: pat}
	for s := start; s <= len(src); s++ {
		m.openCaptures = 0
		if e := m.matchAt(s, 0); e >= 0 {
			if !find {
				return m.pushCaptures(s, e, true)
			}
			L.Push(lua.LNumber(s + 1))
			L.Push(lua.LNumber(e))
			return 2 + m.pushCaptures(s, e, false)
		}
		if anchored {
			break
		}
	}
	L.Push(lua.LNil)
	return 1
}

func textGmatch(L *lua.LState) int {
	m := &patternMatcher{L: L, src: stringArg(L, 1), pat: stringArg(L, 2)}
	chargeCost(L, 1, functionBytes+1<<10)
	at := 0
	L.Push(&lua.LFunction{IsG: true, GFunction: func(L *lua.LState) int {
		m.depth = 0
		for ; at <= len(m.src); at++ {
			m.openCaptures = 0
			if e := m.matchAt(at, 0); e >= 0 {
				s := at
				if at = e; e == s {
					at++
				}
				return m.pushCaptures(s, e, true)
			}
		}
		L.Push(lua.LNil)
		return 1
	}})
	return 1
}

func textGsub(L *lua.LState) int {
	src, with := stringArg(L, 1), L.Get(3)
	pat, anchored := strings.CutPrefix(stringArg(L, 2), "^")
	most := integerArg(L, 4, len(src)+1)
	switch with.(type) {
	case lua.LString, lua.LNumber, *lua.LTable, *lua.LFunction:
	default:
		L.RaiseError("argument 3 is a %s, and a string, table or function is needed", describeValue(with))
	}
	m := &patternMatcher{L: L, src: src, pat: pat}
	var out bytes.Buffer
	add := func(s string) {
		chargeCost(L, int64(len(s))/64, 2*int64(len(s)))
		out.WriteString(s)
	}
	count, s := 0, 0
	for count < most {
		m.openCaptures, m.depth = 0, 0
		e := m.matchAt(s, 0)
		if e >= 0 {
			count++
			add(m.replacementFor(s, e, with))
		}
		switch {
		case e > s:
			s = e
		case s < len(src):
			add(src[s : s+1])
			s++
		default:
			s++
		}
		if s > len(src) || anchored {
			break
		}
	}
	if s < len(src) {
		add(src[s:])
	}
	pushString(L, out.String())
	L.Push(lua.LNumber(count))
	return 2
}

// replacementFor returns the replacement of the match from s to e.
func (m *patternMatcher) replacementFor(s, e int, with lua.LValue) string {
	L := m.L
	var v lua.LValue
	switch with := with.(type) {
	case *lua.LTable, *lua.LFunction:
		top := L.GetTop()
		if f, ok := with.(*lua.LFunction); ok {
			L.Push(f)
			L.Call(m.pushCaptures(s, e, true), 1)
		} else {
			m.pushCaptures(s, e, true)
			L.Push(with.(*lua.LTable).RawGet(L.Get(top + 1)))
		}
		v = L.Get(-1)
		L.SetTop(top)
	default:
		return m.expandCaptures(s, e, with.String())
	}
	if lua.LVIsFalse(v) {
		return m.src[s:e]
	}
	text, ok := stringValue(L, v)
	if !ok {
		L.RaiseError("a %s stands for what matched, and a string is needed", describeValue(v))
	}
	return text
}

// expandCaptures replaces %0 to %9 in a replacement.
func (m *patternMatcher) expandCaptures(s, e int, with string) string {
	if !strings.Contains(with, "%") {
		return with
	}
	chargeCost(m.L, int64(len(with))/32, int64(len(with)))
	var out strings.Builder
	out.Grow(len(with))
	for i := 0; i < len(with); i++ {
		c := with[i]
		if c != '%' || i+1 == len(with) {
			out.WriteByte(c)
			continue
		}
		i++
		part := with[i : i+1]
		switch d := with[i]; {
		case d == '0' || d == '1' && m.openCaptures == 0:
			part = m.src[s:e]
		case d >= '1' && d <= '9':
			if int(d-'1') >= m.openCaptures {
				m.L.RaiseError("the replacement has %%%c, and the pattern no such capture", d)
			}
			top := m.L.GetTop()
			m.pushCapture(int(d - '1'))
			part = m.L.Get(-1).String()
			m.L.SetTop(top)
		}
		chargeCost(m.L, 1+int64(len(part))/64, int64(len(part)))
		out.WriteString(part)
	}
	return out.String()
}

// textFormat supports the formats of C that Lua has. Width and precision have at most two digits.
func textFormat(L *lua.LState) int {
	format := stringArg(L, 1)
	chargeCost(L, int64(len(format))/32, int64(len(format)))
	var out strings.Builder
	out.Grow(len(format))
	arg := 1
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			out.WriteByte(format[i])
			continue
		}
		if i++; i < len(format) && format[i] == '%' {
			out.WriteByte('%')
			continue
		}
		begin := i
		for i < len(format) && strings.IndexByte("-+ #0123456789.", format[i]) >= 0 {
			i++
		}
		if i == len(format) {
			L.RaiseError("the format ends within a %%")
		}
		arg++
		s := formatArg(L, format[begin:i], format[i], arg)
		chargeCost(L, 2+int64(len(s))/64, 2*int64(len(s)))
		out.WriteString(s)
	}
	return pushString(L, out.String())
}

// luaQuoter quotes a text so that Lua reads it back.
var luaQuoter = strings.NewReplacer("\\", "\\\\", `"`, `\"`, "\n", "\\\n", "\r", "\\r", "\x00", "\\000")

func formatArg(L *lua.LState, flags string, verb byte, arg int) string {
	if isTooWide(flags) {
		L.RaiseError("the format %%%s%c is wider than two digits", phrase.CutText(flags, 20), verb)
	}
	spec := "%" + flags
	switch verb {
	case 'd', 'i', 'x', 'X', 'o', 'u':
		if verb == 'i' || verb == 'u' {
			verb = 'd'
		}
		return fmt.Sprintf(spec+string(verb), int64(numberArg(L, arg)))
	case 'c':
		return fmt.Sprintf(spec+"s", string([]byte{byte(integerArg(L, arg, 0))}))
	case 'e', 'E', 'f', 'g', 'G':
		f := numberArg(L, arg)
		_, far := math.Frexp(f) // digits are found by shifting
		chargeCost(L, 10+int64(max(far, -far))/4, 128)
		return fmt.Sprintf(spec+string(verb), f)
	case 'q':
		return `"` + luaQuoter.Replace(displayArg(L, arg)) + `"`
	case 's':
		return fmt.Sprintf(spec+"s", displayArg(L, arg))
	}
	L.RaiseError("the format %%%s%c is not known", flags, verb)
	return ""
}

// isTooWide reports whether width or precision has more than two digits.
func isTooWide(flags string) bool {
	digits := 0
	for i := range len(flags) {
		if digits++; flags[i] < '0' || flags[i] > '9' {
			digits = 0
		}
		if digits > 2 {
			return true
		}
	}
	return len(flags) > 10
}

// displayArg returns a text, number or boolean as text, and the type of other values.
func displayArg(L *lua.LState, arg int) string {
	s, ok := stringValue(L, L.Get(arg))
	if !ok {
		s = L.Get(arg).Type().String()
		if b, isBool := L.Get(arg).(lua.LBool); isBool {
			s = b.String()
		}
	}
	chargeCost(L, int64(len(s))/64, int64(len(s)))
	return s
}
