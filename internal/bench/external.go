package bench

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"muster/internal/daemon"
)

// brokerReady is the line of a broker of its own process.
var brokerReady = regexp.MustCompile(`broker is running`)

// provisionerServes is the line of a provisioner at a broker elsewhere.
var provisionerServes = regexp.MustCompile(`provisioner is serving`)

// commands returns the processes that serve a setup, in the order of their
// start, the last of them a provisioner.
func (s *serving) commands(cfg *Config) []command {
	run := func(file string, ready *regexp.Regexp) command {
		return command{[]string{"provisioner", "run", "--config", file}, ready}
	}
	if cfg.Provisioners == 0 {
		return []command{run(s.config(0), provisionerReady)}
	}
	all := []command{{[]string{"broker", "run", filepath.Join(s.brokerDir(), "nats-server.conf")}, brokerReady}}
	for i := range cfg.Provisioners {
		all = append(all, run(s.config(i), provisionerServes))
	}
	return all
}

// brokerDir is where the files of a broker of its own process are.
func (s *serving) brokerDir() string { return filepath.Join(s.dir, "broker") }

// config is the configuration of provisioner i.
func (s *serving) config(i int) string {
	if i == 0 {
		return filepath.Join(s.home(), "provisioner.yaml")
	}
	return filepath.Join(s.home(), "provisioner"+strconv.Itoa(i+1)+".yaml")
}

// freePort returns an address that nobody listens at. Somebody else may before
// we do; then the start fails and says so.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }() // it has told what it knows
	_, port, err := net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort("localhost", port), err
}

// installExternal makes the files of the broker, and the configurations of all
// provisioners but the first: they have the same keys, and a name and a data_dir
// of their own.
func (s *serving) installExternal(cfg *Config) error {
	_, port, err := net.SplitHostPort(s.broker)
	if err != nil {
		return err
	}
	server := daemon.BrokerServer{Dir: s.brokerDir()}
	server.Name, server.Listen, server.StoreDir = "broker.bench.muster", net.JoinHostPort("127.0.0.1", port), filepath.Join(s.brokerDir(), "store")
	if err := server.Write(s.config(0), s.brokerDir()); err != nil {
		return fmt.Errorf("configure a broker: %w", err)
	}
	text, err := os.ReadFile(s.config(0))
	if err != nil {
		return err
	}
	for i := 1; i < cfg.Provisioners; i++ {
		own := strings.NewReplacer("\nname: provisioner.", fmt.Sprintf("\nname: provisioner%d.", i+1), "\ndata_dir: data\n", fmt.Sprintf("\ndata_dir: data%d\n", i+1))
		if err := os.WriteFile(s.config(i), []byte(own.Replace(string(text))), 0o644); err != nil {
			return err
		}
		if err := os.Mkdir(filepath.Join(s.home(), fmt.Sprintf("data%d", i+1)), 0o700); err != nil {
			return err
		}
	}
	return nil
}
