package realnode

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestSubnetsDoNotMeet: each port has a subnet of its own, within what is meant for this.
func TestSubnetsDoNotMeet(t *testing.T) {
	all := netip.MustParsePrefix("100.64.0.0/10")
	nowhere := netip.MustParsePrefix("240.0.0.0/4")
	var before, beforeServices netip.Prefix
	for port := 1; port <= 65535; port++ {
		p := PodSubnet(port)
		if p != p.Masked() || !all.Contains(p.Addr()) || p.Bits() != 26 {
			t.Fatalf("port %d: %s", port, p)
		}
		if port > 1 && p.Overlaps(before) {
			t.Fatalf("ports %d and %d: %s and %s", port-1, port, before, p)
		}
		before = p
		s := MemberServiceRange(port)
		if s != s.Masked() || !nowhere.Contains(s.Addr()) || port > 1 && s.Overlaps(beforeServices) {
			t.Fatalf("port %d: %s after %s", port, s, beforeServices)
		}
		beforeServices = s
	}
	if got := KubeletAddress(18000); got != "100.81.148.1:10250" {
		t.Errorf("the kubelet beside port 18000 listens at %s", got)
	}
}

// TestTheImageHasAShell: busybox under the names of its commands, the same each time, so
// that a restarted node has the same image.
func TestTheImageHasAShell(t *testing.T) {
	if _, err := exec.LookPath("busybox"); err != nil {
		t.Skip("this machine has no busybox")
	}
	var layer, again bytes.Buffer
	if err := busyboxImage().writeLayer(&layer); err != nil {
		t.Fatal(err)
	}
	if err := busyboxImage().writeLayer(&again); err != nil || !bytes.Equal(layer.Bytes(), again.Bytes()) {
		t.Errorf("made again, it is another (%v)", err)
	}
	links := map[string]string{}
	for r := tar.NewReader(&layer); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		links[h.Name] = h.Linkname
	}
	for _, command := range []string{"sh", "cat", "tar", "nc", "sleep"} {
		if links["bin/"+command] != "busybox" {
			t.Errorf("%s is %q", command, links["bin/"+command])
		}
	}
}

// TestAnotherProgramIsNoMetricsServer: the program of that name is checked, because the
// image is called by the release.
func TestAnotherProgramIsNoMetricsServer(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(own, filepath.Join(dir, metricsServerProgram)); err != nil {
		t.Fatal(err)
	}
	if i, err := metricsServerImage(dir); err == nil || !strings.Contains(err.Error(), "is not what `make nodes` builds") {
		t.Errorf("it is taken for %v (%v)", i.names, err)
	}
}

// TestMissingRequirementsAreNamed: each thing, with what to do about it.
func TestMissingRequirementsAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := MissingRequirements(t.TempDir())
	if err == nil {
		t.Fatal("an empty machine runs containers")
	}
	for _, want := range []string{"apt-get install runc", "apt-get install busybox-static", "kubelet, which `make nodes` builds"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not contain %q: %v", want, err)
		}
	}
}

// TestTheKubeletListensToItsClusterOnly: a client must be known to the member's authority
// or its API server, and have the right by its RBAC.
func TestTheKubeletListensToItsClusterOnly(t *testing.T) {
	data, err := yaml.Marshal(NodeOptions{Port: 20000}.kubeletConfig())
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Address        string
		Authentication struct {
			Anonymous, Webhook struct{ Enabled bool }
			X509               struct{ ClientCAFile string }
		}
		Authorization struct{ Mode string }
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	if a := config.Authentication; a.Anonymous.Enabled || !a.Webhook.Enabled || a.X509.ClientCAFile != filepath.Join(ownDir, caFile) {
		t.Errorf("it lets in %+v", a)
	}
	if config.Authorization.Mode != "Webhook" {
		t.Errorf("the mode of authorization is %s", config.Authorization.Mode)
	}
	if config.Address+":10250" != KubeletAddress(20000) {
		t.Errorf("it listens at %s", config.Address)
	}
}
