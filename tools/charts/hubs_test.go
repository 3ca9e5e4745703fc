package charts

import (
	"context"
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

// helm runs upstream's, which has to succeed; arguments are separated by blanks.
func (i *installation) helm(kubeconfig, args string) string {
	i.t.Helper()
	return i.must("", "helm", append([]string{"--kubeconfig", kubeconfig}, strings.Fields(args)...)...)
}

// store runs an etcd outside of all clusters, which takes only clients that show a certificate
// of its CA; these are the Secret "etcd" in member1. It gives its URL.
func (i *installation) store(address string) string {
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
		_ = cmd.Wait()         // as it was killed
	})
	eventually(i.t, "etcd is ready", func(context.Context) (bool, string) {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err == nil, fmt.Sprint(err)
	})
	i.kubectl(i.member1, "", "create secret generic etcd -n atoll --from-file ca.crt="+dir+"/ca.crt --from-file tls.crt="+dir+"/client.crt --from-file tls.key="+dir+"/client.key")
	return "https://" + net.JoinHostPort(address, port)
}

// leader is the pod of the hub that holds the lease, by the hub's own API; empty: nobody does.
func (i *installation) leader() string {
	holder, err := i.run("", "atoll-lab", "kubectl", "--kubeconfig", i.hub, "get", "lease", "-n", "kube-system", "atoll-hub", "-o", "jsonpath={.spec.holderIdentity}")
	if err != nil {
		return ""
	}
	pods := i.kubectl(i.member1, "", "get pods -n atoll -o jsonpath={range.items[*]}{.metadata.name}={.status.podIP},{end}")
	for pod := range strings.SplitSeq(pods, ",") {
		if name, ip, _ := strings.Cut(pod, "="); ip != "" && strings.HasPrefix(holder, ip+":") {
			return name
		}
	}
	return ""
}

// TestHubsOfTheChartShareAnEtcd: upstream's Helm installs a hub on an etcd of its user's, by mutual
// TLS, and makes two of it, which share the key set of the first; and the agent. The pod of the
// hub that leads is killed, and what is ordered arrives. Both charts are upgraded to another value
// and rolled back, and what runs notices nothing.
func TestHubsOfTheChartShareAnEtcd(t *testing.T) {
	i := newInstallation(t)
	if _, err := os.Stat(filepath.Join(i.bin, "helm")); err != nil {
		t.Fatalf("this test drives upstream's helm: `make helm` builds it: %v", err)
	}
	for _, kind := range []string{"CACHE", "CONFIG", "DATA"} {
		t.Setenv("HELM_"+kind+"_HOME", t.TempDir())
	}
	i.disk("first")
	i.disk("second")
	address := i.kubectl(i.member1, "", "get nodes -o jsonpath={.items[0].status.addresses[0].address}")
	api, gateway := i.balance("atoll-hub", "6443"), i.balance("atoll-hub-gateway", "6444")
	settings := filepath.Join(i.dir, "values.yaml")
	// Helm would wait for what a load balancer is to say of its Service.
	text := fmt.Sprintf("{gatewayAddress: '%s:%s', tlsSANs: ['%s'], persistence: {storageClass: disk}, image: {tag: this}, gateway: {service: {type: ClusterIP}}, etcd: {servers: ['%s'], existingSecret: etcd}}",
		address, gateway, address, i.store(address))
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	hub := "atoll-hub " + filepath.Join(dir, "atoll-hub") + " -n atoll --wait --timeout 150s "
	i.helm(i.member1, "install "+hub+"-f "+settings)
	i.kubectl(i.member1, i.kubectl(i.member1, "", inHub+" keys --data-dir /var/lib/atoll/hub"), "apply -n atoll -f -")
	i.helm(i.member1, "upgrade "+hub+"--reuse-values --set replicas=2,keys.existingSecret=hub-keys")
	i.login(address, api)
	eventually(t, "one of them leads", func(context.Context) (bool, string) { return i.leader() != "", "nobody" })

	var said struct{ Hub, CAHash, Token string }
	if err := yaml.Unmarshal([]byte(i.atoll("token create -o json")), &said); err != nil {
		t.Fatal(err)
	}
	agent := "atoll-agent " + filepath.Join(dir, "atoll-agent") + " -n atoll-system --wait --timeout 90s "
	i.helm(i.member2, "install "+agent+"--create-namespace --set image.tag=this,join.name=two,join.hub="+said.Hub+",join.caHash="+said.CAHash+",join.token="+said.Token)
	eventually(t, "the cluster asks to be let in", func(context.Context) (bool, string) {
		_, err := i.run("", "atoll", "--kubeconfig", i.hub, "accept", "two")
		return err == nil, fmt.Sprint(err)
	})
	i.kubectl(i.hub, "", "wait --for=condition=Ready cluster/two --timeout 60s")
	i.kubectl(i.hub, fmt.Sprintf(shop, 1), "apply --server-side -f -")
	i.kubectl(i.hub, "", "rollout status -n shop deploy/web --timeout 60s")
	cluster := i.kubectl(i.hub, "", "get cluster two -o jsonpath={.status.uid}")
	// Whichever hub leads, and whatever addresses their pods have.
	i.kubectl(i.hub, "", "wait clusterprofile/two -n atoll-inventory --timeout 60s --for=jsonpath={.status.accessProviders[0].cluster.server}=https://atoll-hub.atoll.svc:6443/apis/atoll.dev/v1alpha1/clusters/two/proxy")

	led := i.leader()
	i.kubectl(i.member1, "", "delete pod -n atoll "+led+" --grace-period 0 --force --wait=false")
	eventually(t, "what is ordered arrives", func(context.Context) (bool, string) {
		_, err := i.run(fmt.Sprintf(shop, 2), "atoll-lab", "kubectl", "--kubeconfig", i.hub, "apply", "--server-side", "-f", "-")
		now := i.running()
		return strings.Count(now, "Pod/") == 2, fmt.Sprint(now, err)
	})
	i.kubectl(i.member1, "", "rollout status -n atoll sts/atoll-hub --timeout 90s")
	before := i.running()
	i.comesBack(cluster, before)

	i.helm(i.member2, "upgrade "+agent+"--reuse-values --set logFormat=json,podLabels.team=fleet")
	i.comesBack(cluster, before)
	i.helm(i.member2, "rollback atoll-agent 1 -n atoll-system --wait --timeout 90s")
	i.comesBack(cluster, before)
	if out := i.kubectl(i.member2, "", "get pods -n atoll-system -l app.kubernetes.io/name=atoll-agent -o jsonpath={.items[*].metadata.labels.team}"); out != "" {
		t.Errorf("after the rollback an agent has the label of what was upgraded to: %s", out)
	}
	i.helm(i.member1, "upgrade "+hub+"--reuse-values --set logFormat=json")
	i.comesBack(cluster, before)
	i.helm(i.member1, "rollback atoll-hub 2 -n atoll --wait --timeout 150s")
	i.comesBack(cluster, before)
	if out := i.helm(i.member1, "history atoll-hub -n atoll"); !strings.Contains(out, "Rollback to 2") {
		t.Errorf("Helm's history of the hub: %s", out)
	}
}
