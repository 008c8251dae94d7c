package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// headerMessages says about how many messages a backup has, for progress.
const headerMessages = "Muster-Messages"

const typeBytes = "application/octet-stream"

// stallTimeout is how long whoever takes a backup may take nothing of it;
// chosen, a slow disk that is flushed takes seconds.
const stallTimeout = time.Minute

// errNoBackup means that this provisioner was made without backups.
var errNoBackup = errors.New("this provisioner makes no backups")

// backupRoute serves backups. The answer is a stream, which ends in what proves
// that it is whole: what goes wrong after its beginning cuts it off.
func backupRoute(s *Server) {
	const pattern = "POST /v1/backup"
	s.raw(pattern, func(w http.ResponseWriter, r *http.Request) {
		var q Reason
		err := decode(w, r, &q)
		if err == nil {
			err = s.checkReason(r, pattern, &q)
		}
		if err == nil && s.cfg.Backup == nil {
			err = errNoBackup
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		messages, write, err := s.cfg.Backup(r.Context(), by(r.Context()))
		if err != nil {
			s.cfg.Log.ErrorContext(r.Context(), "backup not begun", "by", by(r.Context()), "err", err)
			problemOf(err).write(w)
			return
		}
		s.cfg.Provisioner.ReportBackup(cause(r, q.Why))
		w.Header().Set("Content-Type", typeBytes)
		w.Header().Set(headerMessages, strconv.FormatUint(messages, 10))
		control := http.NewResponseController(w)
		err = control.Flush()
		if err == nil {
			err = write(s.unhurried(w, r, pattern))
		}
		if err != nil {
			s.cfg.Log.ErrorContext(r.Context(), "backup not made", "by", by(r.Context()), "err", err)
			panic(http.ErrAbortHandler) // all that can still be said: it is not whole
		}
	})
}

// unhurried is an answer that may take as long as it goes on, and as who takes it may.
type unhurried struct {
	w       io.Writer
	control *http.ResponseController

	mayStill func() error
	looked   time.Time // when mayStill was last asked
}

// unhurried returns the answer to a request for the stream of a route.
func (s *Server) unhurried(w http.ResponseWriter, r *http.Request, pattern string) *unhurried {
	return &unhurried{w: w, control: http.NewResponseController(w), mayStill: func() error { return s.mayStill(r, pattern) }, looked: time.Now()}
}

// Write implements [io.Writer].
func (u *unhurried) Write(p []byte) (int, error) {
	if time.Since(u.looked) >= eventCheck {
		if err := u.mayStill(); err != nil {
			return 0, err
		}
		u.looked = time.Now()
	}
	if err := u.control.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return u.w.Write(p)
}

// Backup asks for a backup, says why, and returns it with about how many messages it has.
// Close it. That it is whole is for the caller to see. Errors are those of
// [Client.Do].
func (c *Client) Backup(ctx context.Context, why string) (body io.ReadCloser, messages int, err error) {
	q, err := json.Marshal(Reason{Why: why})
	if err != nil {
		return nil, 0, err
	}
	resp, err := c.send(ctx, http.MethodPost, "/v1/backup", "", bytes.NewReader(q))
	if err != nil {
		return nil, 0, err
	}
	messages, _ = strconv.Atoi(resp.Header.Get(headerMessages)) // 0 shows no end
	return resp.Body, messages, nil
}
