package script

import (
	"strings"

	"github.com/yuin/gopher-lua/ast"
)

// What an instruction of the virtual machine can cost is bounded only for some. The
// others are made calls of functions that are charged by size. They are locals of the
// script whose names no script can spell.

// operations, in the order in which a script is handed them.
var operations = []string{"$add", "$sub", "$mul", "$div", "$mod", "$pow", "$unm", "$concat", "$len", "$get", "$set",
	"$eq", "$lt", "$le", "$new", "$table", "$function", "$all", "$tail"}

var arithmetic = map[string]string{"+": "$add", "-": "$sub", "*": "$mul", "/": "$div", "%": "$mod", "^": "$pow"}

const maxConcat = 50

// rewriter changes a parsed script in place, and notes which names it reads and makes.
type rewriter struct {
	reads []mention
	makes map[string]bool
}

type mention struct {
	name string
	line int
}

// guard a parsed script.
func (r *rewriter) guard(chunk []ast.Stmt) []ast.Stmt {
	out := r.stmts(chunk)
	head := &ast.LocalAssignStmt{Names: operations, Exprs: []ast.Expr{at(&ast.Comma3Expr{}, 1)}}
	head.SetLine(1)
	head.SetLastLine(1)
	return append([]ast.Stmt{head}, out...)
}

// at a line.
func at[T ast.PositionHolder](n T, line int) T {
	n.SetLine(line)
	n.SetLastLine(line)
	return n
}

func ident(name string, line int) ast.Expr { return at(&ast.IdentExpr{Value: name}, line) }

func call(op string, line int, args ...ast.Expr) *ast.FuncCallExpr {
	return at(&ast.FuncCallExpr{Func: ident(op, line), Args: args}, line)
}

func (r *rewriter) stmts(list []ast.Stmt) []ast.Stmt {
	out := make([]ast.Stmt, 0, len(list))
	for _, s := range list {
		out = append(out, r.stmt(s)...)
	}
	return out
}

func (r *rewriter) stmt(s ast.Stmt) []ast.Stmt {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return r.assign(s)
	case *ast.LocalAssignStmt:
		r.made(s.Names...)
		if len(s.Names) == 1 && len(s.Exprs) == 1 {
			if f, ok := s.Exprs[0].(*ast.FunctionExpr); ok { // it may call itself, so it stays what it is
				r.function(f)
				return []ast.Stmt{r.paid(s.Line()), s}
			}
		}
		r.all(s.Exprs)
	case *ast.FuncCallStmt:
		s.Expr = r.expr(s.Expr)
	case *ast.DoBlockStmt:
		s.Stmts = r.stmts(s.Stmts)
	case *ast.WhileStmt:
		s.Condition, s.Stmts = r.expr(s.Condition), r.stmts(s.Stmts)
	case *ast.RepeatStmt:
		s.Condition, s.Stmts = r.expr(s.Condition), r.stmts(s.Stmts)
	case *ast.IfStmt:
		s.Condition, s.Then, s.Else = r.expr(s.Condition), r.stmts(s.Then), r.stmts(s.Else)
	case *ast.NumberForStmt:
		r.made(s.Name)
		s.Init, s.Limit, s.Stmts = r.expr(s.Init), r.expr(s.Limit), r.stmts(s.Stmts)
		if s.Step != nil {
			s.Step = r.expr(s.Step)
		}
	case *ast.GenericForStmt:
		r.made(s.Names...)
		r.all(s.Exprs)
		s.Stmts = r.stmts(s.Stmts)
	case *ast.FuncDefStmt:
		return r.define(s)
	case *ast.ReturnStmt:
		r.all(s.Exprs)
		if len(s.Exprs) == 1 {
			if c, ok := s.Exprs[0].(*ast.FuncCallExpr); ok && !c.AdjustRet { // a tail call, which costs memory
				return []ast.Stmt{at(&ast.FuncCallStmt{Expr: call("$tail", s.Line())}, s.Line()), s}
			}
		}
	}
	return []ast.Stmt{s}
}

// define a function: of a global or local by the statement itself, of a field by $set.
func (r *rewriter) define(s *ast.FuncDefStmt) []ast.Stmt {
	line := s.Line()
	var object, key ast.Expr
	switch name := s.Name.Func.(type) {
	case *ast.IdentExpr:
		r.made(name.Value)
		r.function(s.Func)
		return []ast.Stmt{r.paid(line), s}
	case *ast.AttrGetExpr:
		object, key = name.Object, name.Key
	default: // a method
		object, key = s.Name.Receiver, at(&ast.StringExpr{Value: s.Name.Method}, line)
		s.Func.ParList.Names = append([]string{"self"}, s.Func.ParList.Names...)
	}
	set := call("$set", line, r.expr(object), key, r.expr(s.Func))
	return []ast.Stmt{at(&ast.FuncCallStmt{Expr: set}, line)}
}

// paid is the statement before one that makes a function.
func (r *rewriter) paid(line int) ast.Stmt {
	return at(&ast.FuncCallStmt{Expr: call("$function", line)}, line)
}

func (r *rewriter) made(names ...string) {
	for _, n := range names {
		r.makes[n] = true
	}
}

// assign to fields by calls. Where several are assigned at once, all values are there
// before the first is assigned (the virtual machine's own `a, b = b, a` loses one).
func (r *rewriter) assign(s *ast.AssignStmt) []ast.Stmt {
	fields := 0
	for _, l := range s.Lhs {
		switch l := l.(type) {
		case *ast.AttrGetExpr:
			fields++
		case *ast.IdentExpr:
			r.made(l.Value)
		}
	}
	r.all(s.Rhs)
	line := s.Line()
	if fields == 0 && len(s.Lhs) == 1 {
		return []ast.Stmt{s}
	}
	if len(s.Lhs) == 1 && len(s.Rhs) == 1 {
		g := s.Lhs[0].(*ast.AttrGetExpr)
		set := call("$set", line, r.expr(g.Object), r.expr(g.Key), s.Rhs[0])
		return []ast.Stmt{at(&ast.FuncCallStmt{Expr: set}, line)}
	}
	var places, values []string
	var placeExprs []ast.Expr
	var last []ast.Stmt
	for i, l := range s.Lhs {
		value := "$value" + strings.Repeat("'", i)
		values = append(values, value)
		g, ok := l.(*ast.AttrGetExpr)
		if !ok {
			last = append(last, at(&ast.AssignStmt{Lhs: []ast.Expr{l}, Rhs: []ast.Expr{ident(value, line)}}, line))
			continue
		}
		object, key := "$object"+strings.Repeat("'", i), "$key"+strings.Repeat("'", i)
		places, placeExprs = append(places, object, key), append(placeExprs, r.expr(g.Object), r.expr(g.Key))
		set := call("$set", line, ident(object, line), ident(key, line), ident(value, line))
		last = append(last, at(&ast.FuncCallStmt{Expr: set}, line))
	}
	var block []ast.Stmt
	if fields > 0 {
		placeExprs[len(placeExprs)-1] = alone(placeExprs[len(placeExprs)-1])
		block = append(block, at(&ast.LocalAssignStmt{Names: places, Exprs: placeExprs}, line))
	}
	block = append(block, at(&ast.LocalAssignStmt{Names: values, Exprs: s.Rhs}, line))
	return []ast.Stmt{at(&ast.DoBlockStmt{Stmts: append(block, last...)}, line)}
}

func (r *rewriter) all(list []ast.Expr) {
	for i := range list {
		list[i] = r.expr(list[i])
	}
}

func (r *rewriter) function(f *ast.FunctionExpr) {
	r.made(f.ParList.Names...)
	f.Stmts = r.stmts(f.Stmts)
	if f.ParList.HasVargs {
		// Reading them keeps the virtual machine from making the table `arg` at each call.
		read := call("$all", f.Line(), at(&ast.Comma3Expr{}, f.Line()))
		f.Stmts = append([]ast.Stmt{at(&ast.FuncCallStmt{Expr: read}, f.Line())}, f.Stmts...)
	}
}

// expr that is guarded.
func (r *rewriter) expr(e ast.Expr) ast.Expr {
	line := e.Line()
	switch e := e.(type) {
	case *ast.IdentExpr:
		r.reads = append(r.reads, mention{e.Value, line})
	case *ast.Comma3Expr:
		c := call("$all", line, &ast.Comma3Expr{ExprBase: e.ExprBase})
		c.AdjustRet = e.AdjustRet
		return c
	case *ast.AttrGetExpr:
		object := r.expr(e.Object)
		if s, ok := e.Key.(*ast.StringExpr); ok && len(s.Value) <= shortText {
			e.Object = object
			return e
		}
		return one(call("$get", line, object, r.expr(e.Key)))
	case *ast.TableExpr:
		return r.table(e)
	case *ast.FuncCallExpr:
		r.all(e.Args)
		if e.Func != nil {
			e.Func = r.expr(e.Func)
		}
		if e.Receiver != nil {
			e.Receiver = r.expr(e.Receiver)
		}
	case *ast.LogicalOpExpr:
		e.Lhs, e.Rhs = r.expr(e.Lhs), r.expr(e.Rhs)
	case *ast.RelationalOpExpr:
		return r.compare(e)
	case *ast.StringConcatOpExpr:
		return one(call("$concat", line, r.parts(e)...))
	case *ast.ArithmeticOpExpr:
		return one(call(arithmetic[e.Operator], line, alone(r.expr(e.Lhs)), alone(r.expr(e.Rhs))))
	case *ast.UnaryMinusOpExpr:
		if _, ok := e.Expr.(*ast.NumberExpr); ok {
			return e
		}
		return one(call("$unm", line, alone(r.expr(e.Expr))))
	case *ast.UnaryNotOpExpr:
		e.Expr = r.expr(e.Expr)
	case *ast.UnaryLenOpExpr:
		return one(call("$len", line, alone(r.expr(e.Expr))))
	case *ast.FunctionExpr:
		r.function(e)
		return one(call("$function", line, e))
	}
	return e
}

// one value where a call would give several.
func one(c *ast.FuncCallExpr) ast.Expr {
	c.AdjustRet = true
	return c
}

// alone: one value, also of a call.
func alone(e ast.Expr) ast.Expr {
	if c, ok := e.(*ast.FuncCallExpr); ok {
		c.AdjustRet = true
	}
	return e
}

// parts of a chain of concatenations, which is one operation.
func (r *rewriter) parts(e ast.Expr) []ast.Expr {
	var out []ast.Expr
	for len(out) < maxConcat {
		c, ok := e.(*ast.StringConcatOpExpr)
		if !ok {
			break
		}
		out = append(out, alone(r.expr(c.Lhs)))
		e = c.Rhs
	}
	return append(out, alone(r.expr(e)))
}

// compare by a call, but with what is short for certain.
func (r *rewriter) compare(e *ast.RelationalOpExpr) ast.Expr {
	line := e.Line()
	e.Lhs, e.Rhs = alone(r.expr(e.Lhs)), alone(r.expr(e.Rhs))
	if short(e.Lhs) || short(e.Rhs) {
		return e
	}
	switch e.Operator {
	case "==":
		return one(call("$eq", line, e.Lhs, e.Rhs))
	case "~=":
		return at(&ast.UnaryNotOpExpr{Expr: one(call("$eq", line, e.Lhs, e.Rhs))}, line)
	case "<":
		return one(call("$lt", line, e.Lhs, e.Rhs))
	case "<=":
		return one(call("$le", line, e.Lhs, e.Rhs))
	case ">":
		return one(call("$lt", line, e.Rhs, e.Lhs))
	}
	return one(call("$le", line, e.Rhs, e.Lhs))
}

func short(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.NumberExpr, *ast.TrueExpr, *ast.FalseExpr, *ast.NilExpr:
		return true
	case *ast.StringExpr:
		return len(e.Value) <= shortText
	}
	return false
}

// table constructor: paid by what it holds; keys that are computed are set by $table.
func (r *rewriter) table(e *ast.TableExpr) ast.Expr {
	line := e.Line()
	if len(e.Fields) == 0 {
		return one(call("$new", line))
	}
	var kept []*ast.Field
	args := []ast.Expr{e}
	for i, f := range e.Fields {
		f.Value = r.expr(f.Value)
		if i < len(e.Fields)-1 {
			f.Value = alone(f.Value)
		}
		if s, named := f.Key.(*ast.StringExpr); f.Key == nil || named && len(s.Value) <= shortText {
			kept = append(kept, f)
			continue
		}
		if len(args) > maxConcat {
			args = []ast.Expr{one(call("$table", line, args...))}
		}
		args = append(args, alone(r.expr(f.Key)), alone(f.Value))
	}
	e.Fields = kept
	return one(call("$table", line, args...))
}
