package lostctx

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// writers are methods that write to a database and whose first parameter is a context, by the
// beginning of the import path.
var writers = map[string][]string{
	"database/sql":                  {"ExecContext", "BeginTx"},
	"github.com/jmoiron/sqlx":       {"ExecContext", "NamedExecContext", "MustExecContext", "BeginTxx"},
	"github.com/jackc/pgx/":         {"Exec", "Begin", "BeginTx", "CopyFrom", "SendBatch"},
	"go.mongodb.org/mongo-driver/":  {"InsertOne", "InsertMany", "UpdateOne", "UpdateMany", "UpdateByID", "ReplaceOne", "DeleteOne", "DeleteMany", "BulkWrite"},
	"github.com/uptrace/bun":        {"ExecContext", "BeginTx"},
	"gorm.io/gorm":                  {"WithContext"},
	"github.com/redis/go-redis/":    {"Set", "SetArgs", "SetEx", "SetXX", "HSet", "Del", "Incr", "IncrBy", "Decr", "DecrBy", "Expire"},
	"cloud.google.com/go/firestore": {"Set", "Update", "Delete", "Create"},
}

// written reports a write to a database under a context that does not end with the lock. A
// write after a failure is not reported, because it may have to outlive the lock.
func (c *checker) written(call *ast.CallExpr) {
	c.contextless(call)
	if len(call.Args) == 0 || !facts.IsContext(c.pass.TypesInfo.TypeOf(call.Args[0])) {
		return
	}
	fn := facts.Callee(c.pass.TypesInfo, call)
	if !IsWriter(fn) || c.afterFailure(call) || c.inOwnTransaction(call) {
		return
	}
	lost, _ := c.Scope.Lost(call.Args[0])
	if lost == "" {
		lost = c.Scope.Request(call.Args[0])
	}
	if lost == "" || strings.HasPrefix(lost, "context.WithoutCancel") { // reported where it is made
		return
	}
	c.report(call.Args[0], "%s owns no lock: %s goes on when %s is lost; pass the ctx that the method got", lost, fn.Name(), facts.Quote(c.Locks))
}

// contextless reports a write by a method of *sql.DB without a context, which uses
// context.Background(). With renew=off the check scope reports it.
func (c *checker) contextless(call *ast.CallExpr) {
	fn := facts.Callee(c.pass.TypesInfo, call)
	if fn == nil || fn.FullName() != "(*database/sql.DB).Exec" && fn.FullName() != "(*database/sql.DB).Begin" || c.afterFailure(call) {
		return
	}
	if slices.ContainsFunc(c.Locks, func(l facts.Lock) bool { return l.NoRenew }) {
		return
	}
	variant := map[string]string{"Exec": "ExecContext", "Begin": "BeginTx"}[fn.Name()]
	c.report(call, "%s takes no context: it goes on when %s is lost; use %s with the ctx that the method got", types.ExprString(call.Fun), facts.Quote(c.Locks), variant)
}

// inOwnTransaction reports whether a write is part of a transaction that began under the
// lock's context, so that it is rolled back when the context ends.
func (c *checker) inOwnTransaction(call *ast.CallExpr) bool {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok {
		return false
	}
	begin, ok := c.Scope.Source(sel.X).(*ast.CallExpr)
	if !ok || len(begin.Args) == 0 || !IsWriter(facts.Callee(c.pass.TypesInfo, begin)) {
		return false
	}
	lost, owned := c.Scope.Lost(begin.Args[0])
	return lost == "" && owned
}

// IsWriter reports whether fn is a method of a known client that writes to a database.
func IsWriter(fn *types.Func) bool {
	if fn == nil || fn.Pkg() == nil || fn.Signature().Recv() == nil {
		return false
	}
	for prefix, names := range writers {
		path := fn.Pkg().Path()
		if (path == prefix || strings.HasPrefix(path, strings.TrimSuffix(prefix, "/")+"/")) && slices.Contains(names, fn.Name()) {
			return true
		}
	}
	return false
}

// afterFailure reports whether a node is in a branch for an error or for the end of a context.
func (c *checker) afterFailure(n ast.Node) (found bool) {
	ast.Inspect(c.Body, func(outer ast.Node) bool {
		switch outer := outer.(type) {
		case *ast.IfStmt:
			if (within(outer.Body, n) || outer.Else != nil && within(outer.Else, n)) && c.aboutFailure(outer.Cond) {
				found = true
			}
		case *ast.CommClause:
			if within(outer, n) && outer.Comm != nil && c.receivesDone(outer.Comm) {
				found = true
			}
		case *ast.FuncLit: // it is not known when it is called
			if within(outer, n) {
				found = true
			}
		}
		return !found && outer != nil && within(outer, n)
	})
	return found
}

func (c *checker) aboutFailure(cond ast.Expr) (found bool) {
	ast.Inspect(cond, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			if t := c.pass.TypesInfo.TypeOf(e); t != nil && types.Identical(t, types.Universe.Lookup("error").Type()) {
				found = true
			}
		}
		return !found
	})
	return found
}

func (c *checker) receivesDone(comm ast.Stmt) (found bool) {
	ast.Inspect(comm, func(n ast.Node) bool {
		if u, ok := n.(*ast.UnaryExpr); ok && u.Op == token.ARROW && c.isDone(u.X) {
			found = true
		}
		return !found
	})
	return found
}
