package testbed

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

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

type stream struct {
	Config struct {
		Name     string   `json:"name"`
		Subjects []string `json:"subjects"`
		NoAck    bool     `json:"no_ack"`
		Replicas int      `json:"num_replicas"`
	} `json:"config"`
	Cluster struct {
		Leader string `json:"leader"`
	} `json:"cluster"`
}

func streamList(ctx context.Context, d *daemon.Daemon) ([]stream, error) {
	conn, err := d.Connect("check")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	m, err := conn.RequestWithContext(ctx, "$JS.API.STREAM.LIST", nil)
	if err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	var list struct {
		Streams []stream `json:"streams"`
	}
	if err := json.Unmarshal(m.Data, &list); err != nil || len(list.Streams) == 0 {
		return nil, fmt.Errorf("list streams: %w, %s", err, m.Data)
	}
	return list.Streams, nil
}

func (c *cluster) streams() ([]stream, error) {
	return streamList(c.fleet.Context(), c.fleet.daemon)
}

// allLed reports whether every stream has a leader. During an election a request may get no answer.
func (c *cluster) allLed() bool {
	list, err := c.streams()
	return err == nil && !slices.ContainsFunc(list, func(s stream) bool {
		return s.Config.Replicas > 1 && s.Cluster.Leader == ""
	})
}
