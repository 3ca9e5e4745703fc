package charts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// runHelm runs upstream's helm, which must succeed; arguments are separated by blanks.
func (i *installation) runHelm(kubeconfig, args string) string {
	i.t.Helper()
	return i.mustRun("", "helm", append([]string{"--kubeconfig", kubeconfig}, strings.Fields(args)...)...)
}

// startEtcd runs an etcd outside of all clusters and returns its URL. It accepts only
// clients with a certificate of its CA. The credentials are the Secret "etcd" in member1.
func (i *installation) startEtcd(address string) string {
	i.t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		i.t.Fatal(err)
	}
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	listener.Close()
	dir := filepath.Join(i.dir, "store")
	cmd := exec.Command(filepath.Join(i.bin, "atoll-lab"), "etcd", "--dir", dir, "--address", address, "--port", port)
	if err := cmd.Start(); err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // the kill is its end
	})
	waitUntil(i.t, "etcd is ready", func(context.Context) error {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err
	})
	i.runKubectl(i.member1, "", "create secret generic etcd -n atoll --from-file ca.crt="+dir+"/ca.crt --from-file tls.crt="+dir+"/client.crt --from-file tls.key="+dir+"/client.key")
	return "https://" + net.JoinHostPort(address, port)
}

// leaderPod returns the pod of the hub that holds the lease, by the hub's own API; "" if
// none does.
func (i *installation) leaderPod() string {
	holder, err := i.run("", "atoll-lab", "kubectl", "--kubeconfig", i.hub, "get", "lease", "-n", "kube-system", "atoll-hub", "-o", "jsonpath={.spec.holderIdentity}")
	if err != nil {
		return ""
	}
	pods := i.runKubectl(i.member1, "", "get pods -n atoll -o jsonpath={range.items[*]}{.metadata.name}={.status.podIP},{end}")
	for pod := range strings.SplitSeq(pods, ",") {
		if name, ip, _ := strings.Cut(pod, "="); ip != "" && strings.HasPrefix(holder, ip+":") {
			return name
		}
	}
	return ""
}

// TestHubsOfTheChartShareAnEtcd: upstream's Helm installs the agent, and a hub on its
// user's etcd, by mutual TLS, and scales it to two, which share the key set of the first.
// The leading hub's pod is killed, and orders still arrive. Both charts are upgraded to
// another value and rolled back, without an effect on running pods.
func TestHubsOfTheChartShareAnEtcd(t *testing.T) {
	i := newInstallation(t)
	if _, err := os.Stat(filepath.Join(i.bin, "helm")); err != nil {
		t.Fatalf("this test drives upstream's helm: `make helm` builds it: %v", err)
	}
	for _, kind := range []string{"CACHE", "CONFIG", "DATA"} {
		t.Setenv("HELM_"+kind+"_HOME", t.TempDir())
	}
	i.makeDisk("first")
	i.makeDisk("second")
	address := i.runKubectl(i.member1, "", "get nodes -o jsonpath={.items[0].status.addresses[0].address}")
	api, gateway := i.startBalancer("atoll-hub", "6443"), i.startBalancer("atoll-hub-gateway", "6444")
	settings := filepath.Join(i.dir, "values.yaml")
	// Helm would wait for the status of its Service by a load balancer.
	text := fmt.Sprintf("{gatewayAddress: '%s:%s', tlsSANs: ['%s'], persistence: {storageClass: disk}, image: {tag: this}, gateway: {service: {type: ClusterIP}}, etcd: {servers: ['%s'], existingSecret: etcd}}",
		address, gateway, address, i.startEtcd(address))
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	hub := "atoll-hub " + filepath.Join(chartsDir, "atoll-hub") + " -n atoll --wait --timeout 150s "
	i.runHelm(i.member1, "install "+hub+"-f "+settings)
	i.runKubectl(i.member1, i.runKubectl(i.member1, "", inHub+" keys --data-dir /var/lib/atoll/hub"), "apply -n atoll -f -")
	i.runHelm(i.member1, "upgrade "+hub+"--reuse-values --set replicas=2,keys.existingSecret=hub-keys")
	i.logIn(address, api)
	waitUntil(t, "one of them leads", func(context.Context) error {
		if i.leaderPod() == "" {
			return errors.New("no hub leads")
		}
		return nil
	})

	var said struct{ Hub, CAHash, Token string }
	if err := yaml.Unmarshal([]byte(i.runAtoll("token create -o json")), &said); err != nil {
		t.Fatal(err)
	}
	agent := "atoll-agent " + filepath.Join(chartsDir, "atoll-agent") + " -n atoll-system --wait --timeout 90s "
	i.runHelm(i.member2, "install "+agent+"--create-namespace --set image.tag=this,join.name=two,join.hub="+said.Hub+",join.caHash="+said.CAHash+",join.token="+said.Token)
	waitUntil(t, "the cluster asks to be let in", func(context.Context) error {
		_, err := i.run("", "atoll", "--kubeconfig", i.hub, "accept", "two")
		return err
	})
	i.runKubectl(i.hub, "", "wait --for=condition=Ready cluster/two --timeout 60s")
	i.runKubectl(i.hub, fmt.Sprintf(shopManifests, 1), "apply --server-side -f -")
	i.runKubectl(i.hub, "", "rollout status -n shop deploy/web --timeout 60s")
	cluster := i.runKubectl(i.hub, "", "get cluster two -o jsonpath={.status.uid}")
	// Any hub may lead, with any pod addresses.
	i.runKubectl(i.hub, "", "wait clusterprofile/two -n atoll-inventory --timeout 60s --for=jsonpath={.status.accessProviders[0].cluster.server}=https://atoll-hub.atoll.svc:6443/apis/atoll.dev/v1alpha1/clusters/two/proxy")

	led := i.leaderPod()
	i.runKubectl(i.member1, "", "delete pod -n atoll "+led+" --grace-period 0 --force --wait=false")
	waitUntil(t, "what is ordered arrives", func(context.Context) error {
		_, err := i.run(fmt.Sprintf(shopManifests, 2), "atoll-lab", "kubectl", "--kubeconfig", i.hub, "apply", "--server-side", "-f", "-")
		if now := i.runningInShop(); strings.Count(now, "Pod/") != 2 {
			return fmt.Errorf("in the cluster run: %s (the hub: %v)", now, err)
		}
		return nil
	})
	i.runKubectl(i.member1, "", "rollout status -n atoll sts/atoll-hub --timeout 90s")
	before := i.runningInShop()
	i.comesBack(cluster, before)

	i.runHelm(i.member2, "upgrade "+agent+"--reuse-values --set logFormat=json,podLabels.team=fleet")
	i.comesBack(cluster, before)
	i.runHelm(i.member2, "rollback atoll-agent 1 -n atoll-system --wait --timeout 90s")
	i.comesBack(cluster, before)
	if out := i.runKubectl(i.member2, "", "get pods -n atoll-system -l app.kubernetes.io/name=atoll-agent -o jsonpath={.items[*].metadata.labels.team}"); out != "" {
		t.Errorf("after the rollback an agent has the label of what was upgraded to: %s", out)
	}
	i.runHelm(i.member1, "upgrade "+hub+"--reuse-values --set logFormat=json")
	i.comesBack(cluster, before)
	i.runHelm(i.member1, "rollback atoll-hub 2 -n atoll --wait --timeout 150s")
	i.comesBack(cluster, before)
	if out := i.runHelm(i.member1, "history atoll-hub -n atoll"); !strings.Contains(out, "Rollback to 2") {
		t.Errorf("Helm's history of the hub: %s", out)
	}
}
