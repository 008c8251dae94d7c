package testbed

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"muster/internal/daemon"
)

// streams checks that no stream acknowledges nodes' messages: JetStream would send the acknowledgement to any subject
// that a node names, in the provisioners' account.
func (c *checker) streams() {
	list, err := streamList(c.f.Context(), c.f.daemon)
	if err != nil {
		c.bad("%v", err)
	}
	for _, s := range list {
		for _, subject := range s.Config.Subjects {
			if strings.HasPrefix(subject, "muster.v1.") && !s.Config.NoAck {
				c.bad("stream %s acknowledges what nodes publish to %s", s.Config.Name, subject)
			}
		}
	}
}

func streamList(ctx context.Context, d *daemon.Daemon) (list []*nats.StreamInfo, err error) {
	conn, err := d.Connect("check")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	js, err := conn.JetStream()
	if err != nil {
		return nil, err
	}
	for s := range js.Streams(nats.Context(ctx)) {
		list = append(list, s)
	}
	if len(list) == 0 {
		err = errors.New("no streams are listed")
	}
	return list, err
}

func (c *cluster) streams() ([]*nats.StreamInfo, error) {
	return streamList(c.fleet.Context(), c.fleet.daemon)
}

// allLed reports whether every stream has a leader. During an election a request may get no answer.
func (c *cluster) allLed() bool {
	list, err := c.streams()
	return err == nil && !slices.ContainsFunc(list, func(s *nats.StreamInfo) bool {
		return s.Config.Replicas > 1 && (s.Cluster == nil || s.Cluster.Leader == "")
	})
}
