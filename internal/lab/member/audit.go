package member

import (
	"fmt"
	"os"
	"path/filepath"
)

// auditPolicy logs what is asked by anybody but the cluster's own components: who, in whose
// name, for what.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"]}
- {level: Metadata}
`

// auditArgs of the API server; none where nothing is logged.
func auditArgs(o Options) ([]string, error) {
	if o.AuditLog == "" {
		return nil, nil
	}
	path := filepath.Join(o.Dir, "audit-policy.yaml")
	if err := os.WriteFile(path, []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("audit policy: %w", err)
	}
	return []string{"--audit-policy-file=" + path, "--audit-log-path=" + o.AuditLog}, nil
}
