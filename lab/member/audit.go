package member

import (
	"fmt"
	"os"
	"path/filepath"
)

// auditPolicy logs the requests of all users except the cluster's own components, with
// user, impersonated user and target.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"]}
- {level: Metadata}
`

// prepareAuditArgs returns the audit arguments of the API server; none without a log.
func prepareAuditArgs(o MemberOptions) ([]string, error) {
	if o.AuditLog == "" {
		return nil, nil
	}
	path := filepath.Join(o.Dir, "audit-policy.yaml")
	if err := os.WriteFile(path, []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("audit policy: %w", err)
	}
	return []string{"--audit-policy-file=" + path, "--audit-log-path=" + o.AuditLog}, nil
}
