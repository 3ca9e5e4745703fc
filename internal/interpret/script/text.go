package script

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	lua "github.com/yuin/gopher-lua"
)

var stringLibrary = libraryOf(map[string]lua.LGFunction{
	"byte": textByte, "char": textChar, "find": textFind, "format": textFormat, "gmatch": textGmatch, "gsub": textGsub,
	"len": textLen, "lower": textLower, "match": textMatch, "rep": textRep, "reverse": textReverse, "sub": textSub, "upper": textUpper,
})

// between i and j of Lua, which count from 1, and from the end where they are negative.
func between(n, i, j int) (from, to int) {
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

func textLen(L *lua.LState) int { return push(L, float64(len(textArg(L, 1)))) }

func textLower(L *lua.LState) int { return cased(L, unicode.ToLower) }

func textUpper(L *lua.LState) int { return cased(L, unicode.ToUpper) }

// cased text. Letters are Unicode's, as in the virtual machine's own library; bytes that are
// no UTF-8 stay what they are. What is made may grow, which is paid for beforehand.
func cased(L *lua.LState, letter func(rune) rune) int {
	s := textArg(L, 1)
	charge(L, int64(len(s))/8, 4*int64(len(s)))
	out := make([]byte, 0, len(s))
	for i, n := 0, 0; i < len(s); i += n {
		var r rune
		if r, n = utf8.DecodeRuneInString(s[i:]); r == utf8.RuneError {
			out = append(out, s[i:i+n]...)
		} else {
			out = utf8.AppendRune(out, letter(r))
		}
	}
	return pushText(L, string(out))
}

func textSub(L *lua.LState) int {
	s := textArg(L, 1)
	from, to := between(len(s), wholeArg(L, 2, 1), wholeArg(L, 3, -1))
	return pushText(L, s[from:to])
}

func textRep(L *lua.LState) int {
	s, n := textArg(L, 1), max(0, wholeArg(L, 2, 0))
	if len(s) > 0 {
		n = min(n, MaxBytes) // and then it is refused
		charge(L, int64(len(s))*int64(n)/64, int64(len(s))*int64(n))
	}
	if len(s) == 0 {
		n = 0
	}
	L.Push(lua.LString(strings.Repeat(s, n)))
	return 1
}

func textReverse(L *lua.LState) int {
	b := []byte(textArg(L, 1))
	charge(L, int64(len(b))/16, int64(len(b)))
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return pushText(L, string(b))
}

func textByte(L *lua.LState) int {
	s := textArg(L, 1)
	i := wholeArg(L, 2, 1)
	from, to := between(len(s), i, wholeArg(L, 3, i))
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
		b = append(b, byte(wholeArg(L, i, 0)))
	}
	return pushText(L, string(b))
}

func textFind(L *lua.LState) int { return search(L, true) }

func textMatch(L *lua.LState) int { return search(L, false) }

func search(L *lua.LState, find bool) int {
	src, pat := textArg(L, 1), textArg(L, 2)
	start := wholeArg(L, 3, 1)
	if start < 0 {
		start = max(len(src)+start+1, 1)
	}
	if start = max(start, 1) - 1; start > len(src) {
		L.Push(lua.LNil)
		return 1
	}
	if find && (lua.LVAsBool(L.Get(4)) || !strings.ContainsAny(pat, "^$*+?.([%-")) {
		charge(L, int64(len(src))/32, 0)
		if i := strings.Index(src[start:], pat); i >= 0 {
			L.Push(lua.LNumber(start + i + 1))
			L.Push(lua.LNumber(start + i + len(pat)))
			return 2
		}
		L.Push(lua.LNil)
		return 1
	}
	pat, anchored := strings.CutPrefix(pat, "^")
	m := &matcher{L: L, src: src, pat: pat}
	for s := start; s <= len(src); s++ {
		m.level = 0
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
	m := &matcher{L: L, src: textArg(L, 1), pat: textArg(L, 2)}
	charge(L, 1, functionBytes+1<<10)
	at := 0
	L.Push(&lua.LFunction{IsG: true, GFunction: func(L *lua.LState) int {
		m.deep = 0
		for ; at <= len(m.src); at++ {
			m.level = 0
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
	src, with := textArg(L, 1), L.Get(3)
	pat, anchored := strings.CutPrefix(textArg(L, 2), "^")
	most := wholeArg(L, 4, len(src)+1)
	switch with.(type) {
	case lua.LString, lua.LNumber, *lua.LTable, *lua.LFunction:
	default:
		L.RaiseError("argument 3 is a %s, and a string, table or function is needed", described(with))
	}
	m := &matcher{L: L, src: src, pat: pat}
	var out bytes.Buffer
	add := func(s string) {
		charge(L, int64(len(s))/64, 2*int64(len(s)))
		out.WriteString(s)
	}
	count, s := 0, 0
	for count < most {
		m.level, m.deep = 0, 0
		e := m.matchAt(s, 0)
		if e >= 0 {
			count++
			add(m.replacement(s, e, with))
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
	pushText(L, out.String())
	L.Push(lua.LNumber(count))
	return 2
}

// replacement of what matched from s to e.
func (m *matcher) replacement(s, e int, with lua.LValue) string {
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
		return m.expand(s, e, with.String())
	}
	if lua.LVIsFalse(v) {
		return m.src[s:e]
	}
	text, ok := textual(L, v)
	if !ok {
		L.RaiseError("a %s stands for what matched, and a string is needed", described(v))
	}
	return text
}

// expand %0 to %9 in a replacement.
func (m *matcher) expand(s, e int, with string) string {
	if !strings.Contains(with, "%") {
		return with
	}
	charge(m.L, int64(len(with))/32, int64(len(with)))
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
		case d == '0' || d == '1' && m.level == 0:
			part = m.src[s:e]
		case d >= '1' && d <= '9':
			if int(d-'1') >= m.level {
				m.L.RaiseError("the replacement has %%%c, and the pattern no such capture", d)
			}
			top := m.L.GetTop()
			m.pushCapture(int(d - '1'))
			part = m.L.Get(-1).String()
			m.L.SetTop(top)
		}
		charge(m.L, 1+int64(len(part))/64, int64(len(part)))
		out.WriteString(part)
	}
	return out.String()
}

// textFormat knows C's formats as far as Lua does; width and precision have two digits.
func textFormat(L *lua.LState) int {
	format := textArg(L, 1)
	charge(L, int64(len(format))/32, int64(len(format)))
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
		s := formatted(L, format[begin:i], format[i], arg)
		charge(L, 2+int64(len(s))/64, 2*int64(len(s)))
		out.WriteString(s)
	}
	return pushText(L, out.String())
}

// quoted texts are what Lua reads as the text itself.
var quoted = strings.NewReplacer("\\", "\\\\", `"`, `\"`, "\n", "\\\n", "\r", "\\r", "\x00", "\\000")

func formatted(L *lua.LState, flags string, verb byte, arg int) string {
	for digits, i := 0, 0; i < len(flags); i++ {
		if digits++; flags[i] < '0' || flags[i] > '9' {
			digits = 0
		}
		if digits > 2 || len(flags) > 10 {
			L.RaiseError("the format %%%s%c is wider than two digits", cut(flags, 20), verb)
		}
	}
	spec := "%" + flags
	switch verb {
	case 'd', 'i', 'x', 'X', 'o', 'u':
		if verb == 'i' || verb == 'u' {
			verb = 'd'
		}
		return fmt.Sprintf(spec+string(verb), int64(operand(L, arg)))
	case 'c':
		return fmt.Sprintf(spec+"s", string([]byte{byte(wholeArg(L, arg, 0))}))
	case 'e', 'E', 'f', 'g', 'G':
		f := operand(L, arg)
		_, far := math.Frexp(f) // digits are found by shifting
		charge(L, 10+int64(max(far, -far))/4, 128)
		return fmt.Sprintf(spec+string(verb), f)
	case 'q', 's':
		s, ok := textual(L, L.Get(arg))
		if !ok {
			s = L.Get(arg).Type().String()
			if b, isBool := L.Get(arg).(lua.LBool); isBool {
				s = b.String()
			}
		}
		charge(L, int64(len(s))/64, int64(len(s)))
		if verb == 'q' {
			return `"` + quoted.Replace(s) + `"`
		}
		return fmt.Sprintf(spec+"s", s)
	}
	L.RaiseError("the format %%%s%c is not known", flags, verb)
	return ""
}
