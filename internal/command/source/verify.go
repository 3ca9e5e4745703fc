package source

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/sources/changes"
)

// verifyFlags are what must be signed, and the files of which the command makes the Secret of trusted keys.
type verifyFlags struct {
	mode, secret string
	files        []string
}

// joinModes returns modes as a text.
func joinModes(modes []v1alpha1.VerificationMode) string {
	names := make([]string, 0, len(modes))
	for _, mode := range modes {
		names = append(names, string(mode))
	}
	return strings.Join(names, ", ")
}

// addTo adds the flags, for the modes of a type of Repositories.
func (v *verifyFlags) addTo(cmd *cobra.Command, modes []v1alpha1.VerificationMode) {
	f := cmd.Flags()
	f.StringVar(&v.mode, "verify", "", "what a trusted key must have signed: "+joinModes(modes)+" (default with trusted keys: the first one that the URL can have)")
	f.StringSliceVar(&v.files, "trusted-keys-file", nil, "file with public keys of OpenPGP or SSH, or in PEM as cosign.pub; makes the Secret that --trusted-keys-secret names (default: NAME-signers); may be given more than once")
	f.StringVar(&v.secret, "trusted-keys-secret", "", "Secret of the namespace with the trusted keys")
}

// isStated reports whether something must be signed.
func (v *verifyFlags) isStated() bool { return v.mode != "" || v.secret != "" || len(v.files) > 0 }

// newVerification returns what a Repository at a place states; nil: no signature is verified.
func (v *verifyFlags) newVerification(place changes.Place) *v1alpha1.RepositoryVerification {
	if !v.isStated() {
		return nil
	}
	mode := v1alpha1.VerificationMode(v.mode)
	if mode == "" {
		mode = place.VerificationModes()[0]
	}
	return &v1alpha1.RepositoryVerification{Mode: mode, SecretRef: v1alpha1.RepositorySecretRef{Name: v.secret}}
}

// checkFields refuses flags that need others, and a mode that the place does not have.
func (v *verifyFlags) checkFields(place changes.Place, ref v1alpha1.SourceRef) error {
	mode, modes := v1alpha1.VerificationMode(v.mode), place.VerificationModes()
	switch {
	case mode == "":
		return nil
	case !slices.Contains(modes, mode):
		return fmt.Errorf("--verify: %q is none of %s", mode, joinModes(modes))
	case v.secret == "" && len(v.files) == 0:
		return errors.New("--verify: the hub needs the trusted keys; give --trusted-keys-file or --trusted-keys-secret too")
	case (mode == v1alpha1.VerifyTag || mode == v1alpha1.VerifyTagAndCommit) && ref.Tag == "":
		return fmt.Errorf("--verify %s: only a tag has the signature of a tag; give --tag too", mode)
	}
	return nil
}

// newTrustedKeys returns the Secret of the trusted keys of a place, and names it in the options; nil without files.
func (o *createOptions) newTrustedKeys(place changes.Place) (*madeObject, error) {
	v := &o.verify
	if err := v.checkFields(place, o.ref); err != nil || len(v.files) == 0 {
		return nil, err
	}
	text := map[string]string{}
	for _, name := range v.files {
		raw, err := readFlagFile("--trusted-keys-file", name)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(raw, []byte("PRIVATE KEY")) {
			return nil, fmt.Errorf("--trusted-keys-file: %s has a private key; give public keys", name)
		}
		key := filepath.Base(name)
		for _, why := range validation.IsConfigMapKey(key) {
			return nil, fmt.Errorf("--trusted-keys-file: %q cannot be a key of a Secret: %s", key, why)
		}
		if _, twice := text[key]; twice {
			return nil, fmt.Errorf("--trusted-keys-file: two files have the name %s", key)
		}
		text[key] = string(raw)
	}
	if v.secret == "" {
		v.secret = o.name + "-signers"
	}
	return newHubSecret(v.secret, text, "the trusted keys of "+strings.Join(v.files, ", ")), nil
}
