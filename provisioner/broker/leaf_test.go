package broker_test

import (
	"strings"
	"testing"

	"muster/provisioner/broker"
)

// Everything wrong with a server's place among sites is said at once.
func TestLeafSettings(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		cfg  broker.ServerConfig
		want []string
	}{
		"leaves without anything": {broker.ServerConfig{Name: "n1", Leaves: &broker.LeavesConfig{}}, []string{"leaves: listen", "no names of leaves", "no trust domain"}},
		"hub without anything":    {broker.ServerConfig{Name: "n1", Hub: &broker.HubConfig{}}, []string{"no hub", "no site"}},
		"hub without a port":      {broker.ServerConfig{Name: "n1", Hub: &broker.HubConfig{URLs: []string{"n1"}, Site: "ams1"}}, []string{"hub: listen"}},
		"a name that has a site":  {broker.ServerConfig{Name: "n1@ams1"}, []string{"looks like one at a site"}},
		"leaf and hub in one": {broker.ServerConfig{Name: "n1", Leaves: &broker.LeavesConfig{}, Hub: &broker.HubConfig{}, Cluster: &broker.ClusterConfig{}},
			[]string{"is alone"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tt.cfg.Text()
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %v", want, err)
				}
			}
			if tt.cfg.Hub != nil && strings.Contains(err.Error(), "store directory") {
				t.Errorf("a leaf needs no store: %v", err)
			}
		})
	}
}
