package script

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"atoll.dev/atoll/internal/phrase"
)

// luaProgram is a compiled script in Lua. It is immutable.
type luaProgram struct {
	name  string
	proto *lua.FunctionProto
	// functions holds the global names that the script assigns at its top level.
	functions map[string]bool
	// returns is true where the script itself can return a value.
	returns bool
}

// compileLua compiles a script. Errors are *Error, with line and column where they are known.
func compileLua(name, source string) (p *luaProgram, err error) {
	if len(source) > MaxSource {
		return nil, &Error{Script: name, Why: fmt.Sprintf("it is %d bytes long, and at most %d are read", len(source), MaxSource)}
	}
	if bytes.HasPrefix([]byte(source), []byte("\x1bLua")) {
		return nil, &Error{Script: name, Line: 1, Column: 1, Why: "it is compiled already: give its source"}
	}
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, &Error{Script: name, Why: fmt.Sprintf("it cannot be compiled: %v", r)}
		}
	}()
	chunk, err := parse.Parse(strings.NewReader(source), name)
	if err != nil {
		return nil, parseError(name, source, err)
	}
	functions, returns := globalNames(chunk), returnsValue(chunk)
	r := luaRewriter{makes: map[string]bool{}}
	chunk = r.rewriteChunk(chunk)
	for _, m := range r.reads {
		if why := forbiddenGlobals[m.name]; why != "" && !r.makes[m.name] {
			return nil, &Error{Script: name, Line: m.line, Column: columnOf(source, m.line, m.name), Why: m.name + " is not here: " + why}
		}
	}
	for _, m := range r.readsOfOS {
		if !osFunctions[m.name] && !r.makes["os"] {
			return nil, &Error{Script: name, Line: m.line, Column: columnOf(source, m.line, "os"), Why: "os." + m.name + " is not here: " + reasonNoHost}
		}
	}
	proto, err := lua.Compile(chunk, name)
	if err != nil {
		return nil, compileError(name, source, err)
	}
	clearSourceNames(proto) // errors name the script once
	return &luaProgram{name: name, proto: proto, functions: functions, returns: returns}, nil
}

func compileError(name, source string, err error) error {
	var c *lua.CompileError
	if !errors.As(err, &c) {
		return &Error{Script: name, Why: err.Error()}
	}
	line := min(max(c.Line, 1), 1+strings.Count(strings.TrimRight(source, "\n"), "\n"))
	return &Error{Script: name, Line: line, Column: columnOf(source, line, ""), Why: c.Message}
}

// globalNames returns the names that a script assigns at its top level.
func globalNames(chunk []ast.Stmt) map[string]bool {
	out := map[string]bool{}
	add := func(e ast.Expr) {
		if id, ok := e.(*ast.IdentExpr); ok {
			out[id.Value] = true
		}
	}
	for _, s := range chunk {
		switch s := s.(type) {
		case *ast.FuncDefStmt:
			add(s.Name.Func)
		case *ast.AssignStmt:
			for _, l := range s.Lhs {
				add(l)
			}
		}
	}
	return out
}

// returnsValue reports whether one of the statements returns a value. It does not look into
// functions.
func returnsValue(statements []ast.Stmt) bool {
	return slices.ContainsFunc(statements, func(s ast.Stmt) bool {
		switch s := s.(type) {
		case *ast.ReturnStmt:
			return len(s.Exprs) > 0
		case *ast.IfStmt:
			return returnsValue(s.Then) || returnsValue(s.Else)
		case *ast.DoBlockStmt:
			return returnsValue(s.Stmts)
		case *ast.WhileStmt:
			return returnsValue(s.Stmts)
		case *ast.RepeatStmt:
			return returnsValue(s.Stmts)
		case *ast.NumberForStmt:
			return returnsValue(s.Stmts)
		case *ast.GenericForStmt:
			return returnsValue(s.Stmts)
		}
		return false
	})
}

func clearSourceNames(p *lua.FunctionProto) {
	p.SourceName = ""
	for _, f := range p.FunctionPrototypes {
		clearSourceNames(f)
	}
}

func parseError(name, source string, err error) error {
	var p *parse.Error
	if !errors.As(err, &p) {
		return &Error{Script: name, Why: strings.TrimSpace(err.Error())}
	}
	e := &Error{Script: name, Line: p.Pos.Line, Column: p.Pos.Column, Why: strings.TrimSpace(p.Message)}
	if e.Line < 1 { // it ended too soon
		lines := strings.Split(strings.TrimRight(source, "\n"), "\n")
		e.Line, e.Column = len(lines), len(lines[len(lines)-1])+1
		e.Why += ": the script ends too soon"
	} else if p.Token != "" {
		e.Why += " near " + strconv.Quote(phrase.CutText(p.Token, 40))
	}
	e.Column = max(e.Column, 1)
	return e
}

// columnOf returns the column of the name in the line, or of the first character that is no
// space where name is empty.
func columnOf(source string, line int, name string) int {
	lines := strings.Split(source, "\n")
	if line < 1 || line > len(lines) {
		return 1
	}
	text := lines[line-1]
	if name != "" {
		if at := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).FindStringIndex(text); at != nil {
			return at[0] + 1
		}
	}
	return len(text) - len(strings.TrimLeft(text, " \t")) + 1
}

// argument of a call: a value of JSON.
type argument struct {
	name  string
	value any
}

// luaCall is the state of one answer.
type luaCall struct {
	p *luaProgram
	L *lua.LState
	m *costMeter
}

// runFunction returns what the function returns for the arguments. With an empty function, it
// returns what the script itself returns, with the arguments as globals. An empty table of a
// result takes the type that like has at its place. now is the time that os.time returns.
func (p *luaProgram) runFunction(function string, args []argument, results int, now int64, like ...any) (out []any, err error) {
	r := &luaCall{p: p, m: &costMeter{stepsLeft: MaxSteps, bytesLeft: MaxBytes}}
	defer func() {
		if v := recover(); v != nil {
			out, err = nil, r.scriptError(function, lua.LString(fmt.Sprint(v)))
		}
	}()
	r.L = lua.NewState(lua.Options{CallStackSize: maxCalls, RegistrySize: stackValues, RegistryMaxSize: maxStackValues, RegistryGrowStep: stackValues, SkipOpenLibs: true})
	defer r.L.Close()
	r.L.SetContext(r.m)
	openLibraries(r.L)
	openOSLibrary(r.L, now)
	in := &luaImporter{L: r.L, m: r.m}
	values := make([]lua.LValue, 0, len(args))
	for _, a := range args {
		v, err := in.importValue(a.value, 0)
		if err != nil {
			return nil, &Error{Script: p.name, Function: function, Why: a.name + ": " + err.Error()}
		}
		values = append(values, v)
		if function == "" {
			r.L.SetGlobal(a.name, v)
		}
	}
	chunk := 0
	if function == "" {
		chunk = results
	}
	if err := r.callFunction(r.L.NewFunctionFromProto(p.proto), operationValues, chunk); err != nil {
		return nil, r.scriptError(function, err)
	}
	if function != "" {
		f, ok := r.L.GetGlobal(function).(*lua.LFunction)
		if !ok {
			return nil, &Error{Script: p.name, Function: function, Why: "the script makes no such function"}
		}
		if err := r.callFunction(f, values, results); err != nil {
			return nil, r.scriptError(function, err)
		}
	}
	return r.exportResults(function, results, like)
}

// callFunction returns what the function throws, or nil.
func (r *luaCall) callFunction(f *lua.LFunction, args []lua.LValue, results int) lua.LValue {
	r.L.Push(f)
	for _, a := range args {
		r.L.Push(a)
	}
	if err := r.L.PCall(len(args), results, nil); err != nil {
		return thrownValue(err)
	}
	return nil
}

// thrownValue returns what a script threw, by the error of a protected call, which is always an
// ApiError with a value.
func thrownValue(err error) lua.LValue { return err.(*lua.ApiError).Object }

func (r *luaCall) exportResults(function string, n int, like []any) ([]any, error) {
	top := r.L.GetTop()
	out := make([]any, n)
	ex := &luaExporter{m: r.m}
	for i := range out {
		var was any
		if i < len(like) {
			was = like[i]
		}
		v, err := ex.exportValue(r.L.Get(top-n+1+i), was, 0)
		if err == nil && r.m.stopReason != "" {
			err = &conversionError{why: r.m.stopReason}
		}
		if err != nil {
			what := "its answer"
			if i > 0 {
				what = "its answer " + strconv.Itoa(i+1)
			}
			if r.m.stopReason != "" {
				return nil, &Error{Script: r.p.name, Function: function, Why: what + ": " + r.m.stopReason}
			}
			if f, ok := err.(*conversionError); ok && f.path != "" {
				return nil, &Error{Script: r.p.name, Function: function, Why: what + ": " + err.Error()}
			}
			return nil, &Error{Script: r.p.name, Function: function, Why: what + " " + err.Error()}
		}
		out[i] = v
	}
	return out, nil
}

// thrownLine matches the line with which the virtual machine begins errors.
var thrownLine = regexp.MustCompile(`^:(\d+): ?`)

// maxWhy is the longest reason, in bytes.
const maxWhy = 300

// scriptError returns the *Error for what the script threw.
func (r *luaCall) scriptError(function string, thrown lua.LValue) error {
	e := &Error{Script: r.p.name, Function: function}
	switch v := thrown.(type) {
	case lua.LString:
		e.Why = phrase.CutText(string(v), 4*maxWhy)
	case lua.LNumber:
		e.Why = v.String()
	default:
		e.Why = "it throws a " + thrown.Type().String()
	}
	if m := thrownLine.FindStringSubmatch(e.Why); m != nil {
		e.Line, _ = strconv.Atoi(m[1])
		e.Why = e.Why[len(m[0]):]
	}
	if r.m.stopReason != "" {
		e.Why = r.m.stopReason
	}
	e.Why, _, _ = strings.Cut(strings.TrimSpace(e.Why), "\n")
	if e.Why = strings.ToValidUTF8(phrase.CutText(e.Why, maxWhy), "?"); e.Why == "" {
		e.Why = "it throws an empty error"
	}
	return e
}
