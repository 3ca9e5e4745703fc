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
)

// program is a compiled script in Lua.
type program struct {
	name  string
	proto *lua.FunctionProto
	// functions that the script makes at its top level.
	functions map[string]bool
	// returns: the script itself may give something, besides its functions.
	returns bool
}

// compileLua reads a script. The error says in which line and column.
func compileLua(name, source string) (p *program, err error) {
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
	functions := map[string]bool{}
	for _, s := range chunk {
		if f, ok := s.(*ast.FuncDefStmt); ok {
			if id, ok := f.Name.Func.(*ast.IdentExpr); ok {
				functions[id.Value] = true
			}
		}
		if a, ok := s.(*ast.AssignStmt); ok {
			for _, l := range a.Lhs {
				if id, ok := l.(*ast.IdentExpr); ok {
					functions[id.Value] = true
				}
			}
		}
	}
	returns := gives(chunk)
	r := rewriter{makes: map[string]bool{}}
	chunk = r.guard(chunk)
	for _, m := range r.reads {
		if why := absent[m.name]; why != "" && !r.makes[m.name] {
			return nil, &Error{Script: name, Line: m.line, Column: column(source, m.line, m.name), Why: m.name + " is not here: " + why}
		}
	}
	proto, err := lua.Compile(chunk, name)
	if err != nil {
		var c *lua.CompileError
		if errors.As(err, &c) {
			line := min(max(c.Line, 1), 1+strings.Count(strings.TrimRight(source, "\n"), "\n"))
			return nil, &Error{Script: name, Line: line, Column: column(source, line, ""), Why: c.Message}
		}
		return nil, &Error{Script: name, Why: err.Error()}
	}
	proto.SourceName = "" // errors name the script once
	unname(proto)
	return &program{name: name, proto: proto, functions: functions, returns: returns}, nil
}

// gives tells whether statements return something, wherever among them, functions aside.
func gives(statements []ast.Stmt) bool {
	return slices.ContainsFunc(statements, func(s ast.Stmt) bool {
		switch s := s.(type) {
		case *ast.ReturnStmt:
			return len(s.Exprs) > 0
		case *ast.IfStmt:
			return gives(s.Then) || gives(s.Else)
		case *ast.DoBlockStmt:
			return gives(s.Stmts)
		case *ast.WhileStmt:
			return gives(s.Stmts)
		case *ast.RepeatStmt:
			return gives(s.Stmts)
		case *ast.NumberForStmt:
			return gives(s.Stmts)
		case *ast.GenericForStmt:
			return gives(s.Stmts)
		}
		return false
	})
}

func unname(p *lua.FunctionProto) {
	p.SourceName = ""
	for _, f := range p.FunctionPrototypes {
		unname(f)
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
		e.Why += " near " + strconv.Quote(cut(p.Token, 40))
	}
	e.Column = max(e.Column, 1)
	return e
}

// column in which a name, or anything, begins in a line.
func column(source string, line int, name string) int {
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

// run is one answer being made.
type run struct {
	p *program
	L *lua.LState
	m *meter
}

// ask the script: what its function gives for the arguments, or, where function is "",
// what the script itself gives, its arguments being globals. Each result is made like what
// the argument of the same place in like is.
func (p *program) ask(function string, args []argument, results int, like ...any) (out []any, err error) {
	r := &run{p: p, m: &meter{steps: MaxSteps, bytes: MaxBytes}}
	defer func() {
		if v := recover(); v != nil {
			out, err = nil, r.fail(function, lua.LString(fmt.Sprint(v)))
		}
	}()
	r.L = lua.NewState(lua.Options{CallStackSize: maxCalls, RegistrySize: stackValues, RegistryMaxSize: maxStackValues, RegistryGrowStep: stackValues, SkipOpenLibs: true})
	defer r.L.Close()
	r.L.SetContext(r.m)
	open(r.L)
	in := &importer{L: r.L, m: r.m}
	values := make([]lua.LValue, 0, len(args))
	for _, a := range args {
		v, err := in.value(a.value, 0)
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
	if err := r.call(r.L.NewFunctionFromProto(p.proto), operationValues, chunk); err != nil {
		return nil, r.fail(function, err)
	}
	if function != "" {
		f, ok := r.L.GetGlobal(function).(*lua.LFunction)
		if !ok {
			return nil, &Error{Script: p.name, Function: function, Why: "the script makes no such function"}
		}
		if err := r.call(f, values, results); err != nil {
			return nil, r.fail(function, err)
		}
	}
	return r.results(function, results, like)
}

// call a function; what it threw.
func (r *run) call(f *lua.LFunction, args []lua.LValue, results int) lua.LValue {
	r.L.Push(f)
	for _, a := range args {
		r.L.Push(a)
	}
	err := r.L.PCall(len(args), results, nil)
	if err == nil {
		return nil
	}
	var api *lua.ApiError
	if errors.As(err, &api) && api.Object != nil {
		return api.Object
	}
	return lua.LString(err.Error())
}

func (r *run) results(function string, n int, like []any) ([]any, error) {
	top := r.L.GetTop()
	out := make([]any, n)
	ex := &exporter{m: r.m}
	for i := range out {
		var was any
		if i < len(like) {
			was = like[i]
		}
		v, err := ex.value(r.L.Get(top-n+1+i), was, 0)
		if err == nil && r.m.why != "" {
			err = &fault{why: r.m.why}
		}
		if err != nil {
			what := "its answer"
			if i > 0 {
				what = "its answer " + strconv.Itoa(i+1)
			}
			if r.m.why != "" {
				return nil, &Error{Script: r.p.name, Function: function, Why: what + ": " + r.m.why}
			}
			if f, ok := err.(*fault); ok && f.path != "" {
				return nil, &Error{Script: r.p.name, Function: function, Why: what + ": " + err.Error()}
			}
			return nil, &Error{Script: r.p.name, Function: function, Why: what + " " + err.Error()}
		}
		out[i] = v
	}
	return out, nil
}

// thrownAt is how the virtual machine begins errors.
var thrownAt = regexp.MustCompile(`^:(\d+): ?`)

// maxWhy is the longest reason, in bytes.
const maxWhy = 300

// fail with what the script threw.
func (r *run) fail(function string, thrown lua.LValue) error {
	e := &Error{Script: r.p.name, Function: function}
	switch v := thrown.(type) {
	case lua.LString:
		e.Why = cut(string(v), 4*maxWhy)
	case lua.LNumber:
		e.Why = v.String()
	default:
		e.Why = "it throws a " + thrown.Type().String()
	}
	if m := thrownAt.FindStringSubmatch(e.Why); m != nil {
		e.Line, _ = strconv.Atoi(m[1])
		e.Why = e.Why[len(m[0]):]
	}
	if r.m.why != "" {
		e.Why = r.m.why
	}
	e.Why, _, _ = strings.Cut(strings.TrimSpace(e.Why), "\n")
	if e.Why = strings.ToValidUTF8(cut(e.Why, maxWhy), "?"); e.Why == "" {
		e.Why = "it throws an empty error"
	}
	return e
}
