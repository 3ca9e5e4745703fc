package signature

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
)

// MaxProvenanceBytes is the most of a provenance file.
const MaxProvenanceBytes = 256 << 10

// beginClearText begins a provenance file.
const beginClearText = "-----BEGIN PGP SIGNED MESSAGE-----"

// VerifyProvenance returns the signer of the provenance file of a chart, as helm package --sign writes it. The file must state the
// digest of the archive, such as sha256:HEX. Its text is parsed after a trusted key verified it.
func (k *TrustedKeys) VerifyProvenance(text []byte, archive string, now time.Time) (Signer, error) {
	o := signedObject{noun: "provenance", isText: true}
	if len(text) > MaxProvenanceBytes {
		return "", newRefusal(atoll.ReasonSignatureInvalid, "the provenance has more than %d bytes", MaxProvenanceBytes)
	}
	var block *clearsign.Block
	var rest []byte
	if bytes.HasPrefix(text, []byte(beginClearText)) {
		block, rest = clearsign.Decode(text)
	}
	at := bytes.Index(text, []byte("\n"+beginOpenPGP))
	if block == nil || at < 0 || len(bytes.TrimSpace(rest)) > 0 {
		return "", newRefusal(atoll.ReasonSignatureInvalid, "the provenance is not one clear-signed text of OpenPGP")
	}
	o.payload, o.text = block.Bytes, text[at+1:]
	by, err := k.verifyObject(o, now)
	if err != nil {
		return "", err
	}
	_, sums, _ := strings.Cut(strings.ReplaceAll(string(block.Bytes), "\r\n", "\n"), "\n...\n")
	var stated struct {
		Files map[string]string `json:"files"`
	}
	if err := yaml.Unmarshal([]byte(sums), &stated); err != nil {
		return "", o.refuseInvalid(fmt.Sprintf("by the key %s is of something else than a chart", by))
	}
	for _, digest := range stated.Files {
		if digest != "" && digest == archive {
			return by, nil
		}
	}
	return "", o.refuseInvalid(fmt.Sprintf("by the key %s is of another archive", by))
}
