package testbed

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"muster/internal/daemon"
)

// streams looks at the streams that store what nodes publish. JetStream would
// send its acknowledgement wherever a node says, within the provisioners'
// account, so such a stream must give none.
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

// stream is what JetStream says of a stream.
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

// streamList asks JetStream for all streams.
func streamList(ctx context.Context, d *daemon.Daemon) ([]stream, error) {
	conn, err := d.Connect("check")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, oneLook)
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

// streams asks JetStream for all streams.
func (c *cluster) streams() ([]stream, error) {
	return streamList(c.fleet.Context(), c.fleet.daemon)
}

// led reports whether every stream of a cluster has a leader, who answers for it. After a
// server was killed or stopped that takes an election, and a question that is asked
// meanwhile may never be answered.
func (c *cluster) led() bool {
	list, err := c.streams()
	return err == nil && !slices.ContainsFunc(list, func(s stream) bool { return s.Config.Replicas > 1 && s.Cluster.Leader == "" })
}
