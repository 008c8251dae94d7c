package choria

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"crypto/rand"

	"github.com/nats-io/nats.go"
)

// Every process uses the same names: since 0.29 a server answers for two minutes only to the first of them.
const (
	senderName = "muster"
	callerName = "choria=muster"
)

// actionTimeout is more than the 20 s that a server gives an action.
const actionTimeout = 22 * time.Second

var (
	// errSilent means that no answer came in time. The action may have been carried out.
	errSilent = errors.New("the server does not answer")

	// errAction means that the server refused the action.
	errAction = errors.New("the server refused the action")
)

func replySubject(node, process, request string) string {
	return "provisioning.reply." + node + "." + process + "." + request
}

// requestID returns 32 hex digits, as protocol 1 wants.
func requestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// A call waits for the reply of one connection.
type call struct {
	session *session
	replies chan *Reply // capacity 1
}

// hearReply passes on a reply, if it comes from the connection that was asked.
func (g *Gateway) hearReply(m *nats.Msg) {
	id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	s := g.sessionOf(m)
	g.mu.Lock()
	c := g.calls[id]
	g.mu.Unlock()
	if c == nil || s == nil || c.session != s {
		return
	}
	r, err := DecodeReply(m.Data)
	if err != nil || r.Request != id || r.Sender != string(s.node) {
		g.cfg.Log.Warn("unreadable reply of a Choria server ignored", "node", s.node, "err", err)
		return
	}
	select {
	case c.replies <- r:
	default: // a second one
	}
}

// result is the answer of an action.
type result struct {
	Status  int             `json:"statuscode"`
	Message string          `json:"statusmsg"`
	Data    json.RawMessage `json:"data"`
}

// do calls an action of the server and decodes its data into out. The error wraps errSilent or errAction.
func (s *session) do(ctx context.Context, agent, action string, data, out any, timeout time.Duration) error {
	body, err := json.Marshal(object{"agent": agent, "action": action, "data": data})
	if err != nil {
		return err
	}
	id := requestID()
	request := &Request{
		ID:         id,
		Sender:     senderName,
		Caller:     callerName,
		Collective: "provisioning",
		Agent:      agent,
		Body:       body,
		ReplyTo:    replySubject(s.node.SubjectToken(), s.id, id),
		Time:       s.cfg.Now(),
	}
	text, err := request.Encode(s.version)
	if err != nil {
		return err
	}
	c := &call{session: s, replies: make(chan *Reply, 1)}
	s.mu.Lock()
	s.calls[id] = c
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, id)
	}()
	if err := s.cfg.Conn.Publish("provisioning.node."+string(s.node), text); err != nil {
		return err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case r := <-c.replies:
		return r.result(agent+"#"+action, out)
	case <-timer.C:
		return fmt.Errorf("%w to %s#%s within %v", errSilent, agent, action, timeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Reply) result(action string, out any) error {
	var answer result
	if err := json.Unmarshal(r.Body, &answer); err != nil {
		return fmt.Errorf("%w: answer to %s: %w", errAction, action, err)
	}
	if answer.Status != 0 {
		return fmt.Errorf("%w: %s: status %d, %.200q", errAction, action, answer.Status, answer.Message)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Data, out); err != nil {
		return fmt.Errorf("%w: data of %s: %w", errAction, action, err)
	}
	return nil
}

// provision calls an action of the agent choria_provision, which wants the token's secret.
func (s *session) provision(ctx context.Context, action string, data object, out any) error {
	data["token"] = string(s.token.Token)
	return s.do(ctx, "choria_provision", action, data, out, actionTimeout)
}
