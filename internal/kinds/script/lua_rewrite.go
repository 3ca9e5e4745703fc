package script

import (
	"strings"

	"github.com/yuin/gopher-lua/ast"
)

// Some instructions of the virtual machine have no bounded cost. The rewriter turns them into
// calls of functions that charge by size. These functions are locals of the script, with names
// that no script can spell.

// operationNames are in the order of operationValues.
var operationNames = []string{"$add", "$sub", "$mul", "$div", "$mod", "$pow", "$unm", "$concat", "$len", "$get", "$set",
	"$eq", "$lt", "$le", "$new", "$table", "$function", "$all", "$tail"}

var arithmeticOperations = map[string]string{"+": "$add", "-": "$sub", "*": "$mul", "/": "$div", "%": "$mod", "^": "$pow"}

const maxConcat = 50

// luaRewriter changes a parsed script in place and records the names that it reads and makes.
type luaRewriter struct {
	reads []nameUse
	// readsOfOS are fields of the library os.
	readsOfOS []nameUse
	makes     map[string]bool
}

type nameUse struct {
	name string
	line int
}

// rewriteChunk rewrites a parsed script.
func (r *luaRewriter) rewriteChunk(chunk []ast.Stmt) []ast.Stmt {
	out := r.rewriteBlock(chunk)
	head := &ast.LocalAssignStmt{Names: operationNames, Exprs: []ast.Expr{atLine(&ast.Comma3Expr{}, 1)}}
	head.SetLine(1)
	head.SetLastLine(1)
	return append([]ast.Stmt{head}, out...)
}

// atLine sets the line of a node and returns the node.
func atLine[T ast.PositionHolder](n T, line int) T {
	n.SetLine(line)
	n.SetLastLine(line)
	return n
}

func newIdent(name string, line int) ast.Expr { return atLine(&ast.IdentExpr{Value: name}, line) }

func newCall(op string, line int, args ...ast.Expr) *ast.FuncCallExpr {
	return atLine(&ast.FuncCallExpr{Func: newIdent(op, line), Args: args}, line)
}

func (r *luaRewriter) rewriteBlock(list []ast.Stmt) []ast.Stmt {
	out := make([]ast.Stmt, 0, len(list))
	for _, s := range list {
		out = append(out, r.rewriteStatement(s)...)
	}
	return out
}

func (r *luaRewriter) rewriteStatement(s ast.Stmt) []ast.Stmt {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return r.rewriteAssignment(s)
	case *ast.LocalAssignStmt:
		return r.rewriteLocal(s)
	case *ast.FuncDefStmt:
		return r.rewriteDefinition(s)
	case *ast.ReturnStmt:
		return r.rewriteReturn(s)
	case *ast.FuncCallStmt:
		s.Expr = r.rewriteExpression(s.Expr)
	default:
		r.rewriteControlStatement(s)
	}
	return []ast.Stmt{s}
}

func (r *luaRewriter) rewriteLocal(s *ast.LocalAssignStmt) []ast.Stmt {
	r.recordAssignedNames(s.Names...)
	if len(s.Names) == 1 && len(s.Exprs) == 1 {
		if f, ok := s.Exprs[0].(*ast.FunctionExpr); ok { // it can call itself, so it stays a function
			r.rewriteFunction(f)
			return []ast.Stmt{r.functionCharge(s.Line()), s}
		}
	}
	r.rewriteExpressions(s.Exprs)
	return []ast.Stmt{s}
}

func (r *luaRewriter) rewriteReturn(s *ast.ReturnStmt) []ast.Stmt {
	r.rewriteExpressions(s.Exprs)
	if len(s.Exprs) == 1 {
		if c, ok := s.Exprs[0].(*ast.FuncCallExpr); ok && !c.AdjustRet { // a tail call, which costs memory
			return []ast.Stmt{atLine(&ast.FuncCallStmt{Expr: newCall("$tail", s.Line())}, s.Line()), s}
		}
	}
	return []ast.Stmt{s}
}

// rewriteControlStatement rewrites blocks, branches and loops in place.
func (r *luaRewriter) rewriteControlStatement(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.DoBlockStmt:
		s.Stmts = r.rewriteBlock(s.Stmts)
	case *ast.WhileStmt:
		s.Condition, s.Stmts = r.rewriteExpression(s.Condition), r.rewriteBlock(s.Stmts)
	case *ast.RepeatStmt:
		s.Condition, s.Stmts = r.rewriteExpression(s.Condition), r.rewriteBlock(s.Stmts)
	case *ast.IfStmt:
		s.Condition, s.Then, s.Else = r.rewriteExpression(s.Condition), r.rewriteBlock(s.Then), r.rewriteBlock(s.Else)
	case *ast.NumberForStmt:
		r.recordAssignedNames(s.Name)
		s.Init, s.Limit, s.Stmts = r.rewriteExpression(s.Init), r.rewriteExpression(s.Limit), r.rewriteBlock(s.Stmts)
		if s.Step != nil {
			s.Step = r.rewriteExpression(s.Step)
		}
	case *ast.GenericForStmt:
		r.recordAssignedNames(s.Names...)
		r.rewriteExpressions(s.Exprs)
		s.Stmts = r.rewriteBlock(s.Stmts)
	}
}

// rewriteDefinition keeps the statement for a global or local function. A function in a field
// is set by $set.
func (r *luaRewriter) rewriteDefinition(s *ast.FuncDefStmt) []ast.Stmt {
	line := s.Line()
	var object, key ast.Expr
	switch name := s.Name.Func.(type) {
	case *ast.IdentExpr:
		r.recordAssignedNames(name.Value)
		r.rewriteFunction(s.Func)
		return []ast.Stmt{r.functionCharge(line), s}
	case *ast.AttrGetExpr:
		object, key = name.Object, name.Key
	default: // a method
		object, key = s.Name.Receiver, atLine(&ast.StringExpr{Value: s.Name.Method}, line)
		s.Func.ParList.Names = append([]string{"self"}, s.Func.ParList.Names...)
	}
	set := newCall("$set", line, r.rewriteExpression(object), key, r.rewriteExpression(s.Func))
	return []ast.Stmt{atLine(&ast.FuncCallStmt{Expr: set}, line)}
}

// functionCharge returns the statement that charges for the function of the next statement.
func (r *luaRewriter) functionCharge(line int) ast.Stmt {
	return atLine(&ast.FuncCallStmt{Expr: newCall("$function", line)}, line)
}

func (r *luaRewriter) recordAssignedNames(names ...string) {
	for _, n := range names {
		r.makes[n] = true
	}
}

// rewriteAssignment turns assignments to fields into calls. All values of a multiple assignment
// are computed before the first is assigned: the virtual machine's own `a, b = b, a` loses one.
func (r *luaRewriter) rewriteAssignment(s *ast.AssignStmt) []ast.Stmt {
	fields := 0
	for _, l := range s.Lhs {
		switch l := l.(type) {
		case *ast.AttrGetExpr:
			fields++
		case *ast.IdentExpr:
			r.recordAssignedNames(l.Value)
		}
	}
	r.rewriteExpressions(s.Rhs)
	line := s.Line()
	if fields == 0 && len(s.Lhs) == 1 {
		return []ast.Stmt{s}
	}
	if len(s.Lhs) == 1 && len(s.Rhs) == 1 {
		g := s.Lhs[0].(*ast.AttrGetExpr)
		set := newCall("$set", line, r.rewriteExpression(g.Object), r.rewriteExpression(g.Key), s.Rhs[0])
		return []ast.Stmt{atLine(&ast.FuncCallStmt{Expr: set}, line)}
	}
	var places, values []string
	var placeExprs []ast.Expr
	var last []ast.Stmt
	for i, l := range s.Lhs {
		value := "$value" + strings.Repeat("'", i)
		values = append(values, value)
		g, ok := l.(*ast.AttrGetExpr)
		if !ok {
			last = append(last, atLine(&ast.AssignStmt{Lhs: []ast.Expr{l}, Rhs: []ast.Expr{newIdent(value, line)}}, line))
			continue
		}
		object, key := "$object"+strings.Repeat("'", i), "$key"+strings.Repeat("'", i)
		places, placeExprs = append(places, object, key), append(placeExprs, r.rewriteExpression(g.Object), r.rewriteExpression(g.Key))
		set := newCall("$set", line, newIdent(object, line), newIdent(key, line), newIdent(value, line))
		last = append(last, atLine(&ast.FuncCallStmt{Expr: set}, line))
	}
	var block []ast.Stmt
	if fields > 0 {
		placeExprs[len(placeExprs)-1] = asSingleValue(placeExprs[len(placeExprs)-1])
		block = append(block, atLine(&ast.LocalAssignStmt{Names: places, Exprs: placeExprs}, line))
	}
	block = append(block, atLine(&ast.LocalAssignStmt{Names: values, Exprs: s.Rhs}, line))
	return []ast.Stmt{atLine(&ast.DoBlockStmt{Stmts: append(block, last...)}, line)}
}

func (r *luaRewriter) rewriteExpressions(list []ast.Expr) {
	for i := range list {
		list[i] = r.rewriteExpression(list[i])
	}
}

func (r *luaRewriter) rewriteFunction(f *ast.FunctionExpr) {
	r.recordAssignedNames(f.ParList.Names...)
	f.Stmts = r.rewriteBlock(f.Stmts)
	if f.ParList.HasVargs {
		// Reading them keeps the virtual machine from making the table `arg` at each call.
		read := newCall("$all", f.Line(), atLine(&ast.Comma3Expr{}, f.Line()))
		f.Stmts = append([]ast.Stmt{atLine(&ast.FuncCallStmt{Expr: read}, f.Line())}, f.Stmts...)
	}
}

// rewriteExpression returns the expression with all that is not bounded as calls.
func (r *luaRewriter) rewriteExpression(e ast.Expr) ast.Expr {
	line := e.Line()
	switch e := e.(type) {
	case *ast.IdentExpr:
		r.reads = append(r.reads, nameUse{e.Value, line})
	case *ast.Comma3Expr:
		c := newCall("$all", line, &ast.Comma3Expr{ExprBase: e.ExprBase})
		c.AdjustRet = e.AdjustRet
		return c
	case *ast.AttrGetExpr:
		r.recordOSFieldRead(e)
		object := r.rewriteExpression(e.Object)
		if isShortLiteral(e.Key) && isString(e.Key) {
			e.Object = object
			return e
		}
		return singleValue(newCall("$get", line, object, r.rewriteExpression(e.Key)))
	case *ast.TableExpr:
		return r.rewriteTable(e)
	case *ast.FuncCallExpr:
		r.rewriteExpressions(e.Args)
		if e.Func != nil {
			e.Func = r.rewriteExpression(e.Func)
		}
		if e.Receiver != nil {
			e.Receiver = r.rewriteExpression(e.Receiver)
		}
	case *ast.FunctionExpr:
		r.rewriteFunction(e)
		return singleValue(newCall("$function", line, e))
	default:
		return r.rewriteOperator(e)
	}
	return e
}

// recordOSFieldRead records the field, where the expression is os.field.
func (r *luaRewriter) recordOSFieldRead(e *ast.AttrGetExpr) {
	object, isName := e.Object.(*ast.IdentExpr)
	field, isText := e.Key.(*ast.StringExpr)
	if isName && isText && object.Value == "os" {
		r.readsOfOS = append(r.readsOfOS, nameUse{field.Value, e.Line()})
	}
}

func isString(e ast.Expr) bool {
	_, is := e.(*ast.StringExpr)
	return is
}

func (r *luaRewriter) rewriteOperator(e ast.Expr) ast.Expr {
	line := e.Line()
	switch e := e.(type) {
	case *ast.LogicalOpExpr:
		e.Lhs, e.Rhs = r.rewriteExpression(e.Lhs), r.rewriteExpression(e.Rhs)
	case *ast.RelationalOpExpr:
		return r.rewriteComparison(e)
	case *ast.StringConcatOpExpr:
		return singleValue(newCall("$concat", line, r.concatOperands(e)...))
	case *ast.ArithmeticOpExpr:
		return singleValue(newCall(arithmeticOperations[e.Operator], line, asSingleValue(r.rewriteExpression(e.Lhs)), asSingleValue(r.rewriteExpression(e.Rhs))))
	case *ast.UnaryMinusOpExpr:
		if _, ok := e.Expr.(*ast.NumberExpr); ok {
			return e
		}
		return singleValue(newCall("$unm", line, asSingleValue(r.rewriteExpression(e.Expr))))
	case *ast.UnaryNotOpExpr:
		e.Expr = r.rewriteExpression(e.Expr)
	case *ast.UnaryLenOpExpr:
		return singleValue(newCall("$len", line, asSingleValue(r.rewriteExpression(e.Expr))))
	}
	return e
}

// singleValue limits a call to one result.
func singleValue(c *ast.FuncCallExpr) ast.Expr {
	c.AdjustRet = true
	return c
}

// asSingleValue limits the expression to one result, where it is a call.
func asSingleValue(e ast.Expr) ast.Expr {
	if c, ok := e.(*ast.FuncCallExpr); ok {
		c.AdjustRet = true
	}
	return e
}

// concatOperands returns the operands of a chain of concatenations, which is one operation.
func (r *luaRewriter) concatOperands(e ast.Expr) []ast.Expr {
	var out []ast.Expr
	for len(out) < maxConcat {
		c, ok := e.(*ast.StringConcatOpExpr)
		if !ok {
			break
		}
		out = append(out, asSingleValue(r.rewriteExpression(c.Lhs)))
		e = c.Rhs
	}
	return append(out, asSingleValue(r.rewriteExpression(e)))
}

// rewriteComparison turns a comparison into a call, unless one side is a short literal.
func (r *luaRewriter) rewriteComparison(e *ast.RelationalOpExpr) ast.Expr {
	line := e.Line()
	e.Lhs, e.Rhs = asSingleValue(r.rewriteExpression(e.Lhs)), asSingleValue(r.rewriteExpression(e.Rhs))
	if isShortLiteral(e.Lhs) || isShortLiteral(e.Rhs) {
		return e
	}
	switch e.Operator {
	case "==":
		return singleValue(newCall("$eq", line, e.Lhs, e.Rhs))
	case "~=":
		return atLine(&ast.UnaryNotOpExpr{Expr: singleValue(newCall("$eq", line, e.Lhs, e.Rhs))}, line)
	case "<":
		return singleValue(newCall("$lt", line, e.Lhs, e.Rhs))
	case "<=":
		return singleValue(newCall("$le", line, e.Lhs, e.Rhs))
	case ">":
		return singleValue(newCall("$lt", line, e.Rhs, e.Lhs))
	}
	return singleValue(newCall("$le", line, e.Rhs, e.Lhs))
}

func isShortLiteral(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.NumberExpr, *ast.TrueExpr, *ast.FalseExpr, *ast.NilExpr:
		return true
	case *ast.StringExpr:
		return len(e.Value) <= shortText
	}
	return false
}

// rewriteTable charges a constructor by its content. $table sets the computed keys.
func (r *luaRewriter) rewriteTable(e *ast.TableExpr) ast.Expr {
	line := e.Line()
	if len(e.Fields) == 0 {
		return singleValue(newCall("$new", line))
	}
	var kept []*ast.Field
	args := []ast.Expr{e}
	for i, f := range e.Fields {
		f.Value = r.rewriteExpression(f.Value)
		if i < len(e.Fields)-1 {
			f.Value = asSingleValue(f.Value)
		}
		if s, named := f.Key.(*ast.StringExpr); f.Key == nil || named && len(s.Value) <= shortText {
			kept = append(kept, f)
			continue
		}
		if len(args) > maxConcat {
			args = []ast.Expr{singleValue(newCall("$table", line, args...))}
		}
		args = append(args, asSingleValue(r.rewriteExpression(f.Key)), asSingleValue(f.Value))
	}
	e.Fields = kept
	return singleValue(newCall("$table", line, args...))
}
