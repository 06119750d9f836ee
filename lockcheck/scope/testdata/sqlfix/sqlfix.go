package sqlfix

import (
	"context"
	"database/sql"
)

type Store struct{ db *sql.DB }

//lock:key="row:<id>" ttl=2s renew=off
func (s *Store) Save(ctx context.Context, id int64) error {
	if err := s.db.Ping(); err != nil { // want `s.db.Ping takes no context and has no bound.*use PingContext`
		return err
	}
	if _, err := s.db.Exec("UPDATE rows SET n = 1 WHERE id = ?", id); err != nil { // want `use ExecContext`
		return err
	}
	if _, err := s.db.ExecContext(ctx, "UPDATE rows"); err != nil {
		return err
	}
	_, err := s.db.Query("SELECT 1") //lockcheck:ignore scope it is in memory
	return err
}
