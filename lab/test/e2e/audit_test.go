package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// auditReached is what hubs of these tests log: what leads to members.
const auditReached = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, verbs: [create, update, patch, delete, get], resources: [{group: "", resources: ["pods", "pods/*"]}, {group: atoll.dev, resources: [clusters/proxy]}]}
- {level: None}
`

// auditArgs are flags by which the hub of the lab in a directory logs so.
func auditArgs(dir string) ([]string, error) {
	policy := filepath.Join(dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditReached), 0o600); err != nil {
		return nil, err
	}
	return []string{"--audit-policy-file", policy, "--audit-log-path", hubAudit(dir)}, nil
}

// hubAudit is the file of that log.
func hubAudit(dir string) string { return filepath.Join(dir, "audit.log") }

// auditEvent is a line of an audit log.
type auditEvent struct {
	AuditID, Verb, RequestURI string
	User, ImpersonatedUser    struct {
		Username string
		Groups   []string
	}
}

// readAuditLog reads a log.
func readAuditLog(t *testing.T, file string) (all []auditEvent) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var e auditEvent
		// The last line may be on its way.
		if strings.HasSuffix(line, "\n") {
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%s: %v: %s", file, err, line)
			}
			all = append(all, e)
		}
	}
	return all
}

// tracedRequest is a request as it stands in two audit logs.
type tracedRequest struct{ what, verb, onHub, inMember string }

// sameAudit returns a check that the logs of the hub and of a member name a person for a request
// there and there, under one audit ID.
func sameAudit(t *testing.T, memberLog, person string, r tracedRequest) func(context.Context) error {
	hubLog := hubAudit(sharedWorld.lab.Dir())
	return func(context.Context) error {
		there := readAuditLog(t, memberLog)
		missing := fmt.Errorf("the hub's log has no %s of %s by %s", r.verb, r.onHub, person)
		for _, here := range readAuditLog(t, hubLog) {
			if here.Verb != r.verb || !strings.Contains(here.RequestURI, r.onHub) || here.User.Username != person {
				continue
			}
			missing = fmt.Errorf("the member's log has no %s of %s by %s with the audit ID %s", r.verb, r.inMember, person, here.AuditID)
			if slices.ContainsFunc(there, func(e auditEvent) bool {
				return e.AuditID == here.AuditID && e.Verb == r.verb && strings.Contains(e.RequestURI, r.inMember) &&
					e.User.Username != person && e.ImpersonatedUser.Username == person && slices.Contains(e.ImpersonatedUser.Groups, "atoll:masters")
			}) {
				return nil
			}
		}
		return missing
	}
}

// bothLogsName checks that a member's audit log and the hub's name the same person, for
// writes to objects shown on the hub, through the proxy, and for connections.
func bothLogsName(t *testing.T, ns, cluster, memberLog, via string) {
	t.Helper()
	const person = "atoll-admin"
	hub := sharedWorld.lab.KubeconfigPath("hub")
	apply(t, ns, strings.Replace(undoneDeployment, "member1,member2", cluster, 1))
	name := "" // of the pod, in the member
	testwait.UntilNil(t, "its pod is seen", func(context.Context) error {
		out := kubectlAt(t, hub, "", "get pods -n "+ns+" -o jsonpath={.items[0].metadata.name}:{.items[0].status.phase}")
		shown, running := strings.CutSuffix(out, ":Running")
		if name, _ = strings.CutSuffix(shown, "."+cluster); !running {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	expectOutput(t, "a label", kubectlAt(t, hub, "", "label pod "+name+"."+cluster+" seen=yes -n "+ns), "labeled")
	// Its node has no kubelet: how far it comes is what counts here.
	expectOutput(t, "exec", kubectlAt(t, hub, "", "exec "+name+"."+cluster+" -n "+ns+" -- ls"), "/exec/"+ns+"/")
	expectOutput(t, "exec through the proxy", kubectlAt(t, via, "", "exec "+name+" -n "+ns+" -- ls"), "/exec/"+ns+"/")
	expectOutput(t, "a label through the proxy", kubectlAt(t, via, "", "label pod "+name+" seen- -n "+ns), "unlabeled")
	pods, proxy := "/api/v1/namespaces/"+ns+"/pods/"+name, "/clusters/"+cluster+"/proxy"
	for _, c := range []tracedRequest{
		{"a write on the hub", "patch", pods + "." + cluster, pods},
		{"exec on the hub", "get", pods + "." + cluster + "/exec", pods + "/exec"},
		{"a write through the proxy", "patch", proxy + pods, pods},
		{"exec through the proxy", "get", proxy + pods + "/exec", pods + "/exec"},
	} {
		testwait.UntilNil(t, c.what+" is in both logs", sameAudit(t, memberLog, person, c))
	}
}
