package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
)

func backupRoutes(s *Server) {
	need := access{admin, true}
	answer := stream{need: need, form: "application/octet-stream", pieces: "Muster-Messages"}
	s.handle("POST /v1/backup", need, func(w http.ResponseWriter, r *http.Request) {
		cause, err := decode(w, r, need, &Reason{})
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.stream(w, r, answer, func(ctx context.Context, started func(messages uint64), out *reader) error {
			return s.cfg.Backup(ctx, cause.By, func(messages uint64) {
				s.cfg.Orders.Process.BackupBegun(cause)
				started(messages)
			}, out)
		})
	})
}

// Backup starts a backup and returns it with its approximate number of messages. The caller verifies that it is
// complete, and closes it. Errors are those of [Client.Do].
func (c *Client) Backup(ctx context.Context, why string) (body io.ReadCloser, messages int, err error) {
	q, err := json.Marshal(Reason{Why: why})
	if err != nil {
		return nil, 0, err
	}
	return c.stream(ctx, http.MethodPost, "/v1/backup", "Muster-Messages", bytes.NewReader(q))
}
