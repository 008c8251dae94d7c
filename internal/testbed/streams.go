package testbed

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// streams looks at the streams that store what nodes publish. JetStream would
// send its acknowledgement wherever a node says, within the provisioners'
// account, so such a stream must give none.
func (c *checker) streams() {
	list, err := c.f.streamList()
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
func (f *Fleet) streamList() ([]stream, error) {
	conn, err := f.daemon.Connect("check")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(f.Context(), oneLook)
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

// Replicas are how many copies of each stream there are to be, by its name.
func (f *Fleet) Replicas() map[string]int {
	f.t.Helper()
	list, err := f.streamList()
	if err != nil {
		f.t.Fatal(err)
	}
	replicas := map[string]int{}
	for _, s := range list {
		replicas[s.Config.Name] = s.Config.Replicas
	}
	return replicas
}

// Leader is the server of a cluster that leads a stream.
func (f *Fleet) Leader(name string) *Server {
	f.t.Helper()
	var leader *Server
	f.Eventually("stream "+name+" has a leader", func() bool {
		list, err := f.streamList()
		for _, s := range list {
			for _, server := range f.cluster.servers {
				if err == nil && s.Config.Name == name && s.Cluster.Leader == server.Name {
					leader = server
				}
			}
		}
		return leader != nil
	})
	return leader
}

// led reports whether every stream of a cluster has a leader, who answers for it. After a
// server was killed or stopped that takes an election, and a question that is asked
// meanwhile may never be answered.
func (f *Fleet) led() bool {
	list, err := f.streamList()
	return err == nil && !slices.ContainsFunc(list, func(s stream) bool { return s.Config.Replicas > 1 && s.Cluster.Leader == "" })
}
