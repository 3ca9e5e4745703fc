package apiserver

import (
	"encoding/base64"
	"fmt"
)

// encryptionConfig encrypts Secrets at rest with key. Identity comes last, so
// that what was stored in clear before stays readable.
func encryptionConfig(key []byte) []byte {
	return fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox:
      keys:
      - name: hub
        secret: %s
  - identity: {}
`, base64.StdEncoding.EncodeToString(key))
}
