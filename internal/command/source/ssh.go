package source

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/sources/changes"
)

// sshFlags are the files of which the command makes the Secret of a repository over SSH.
type sshFlags struct {
	identity, password, knownHosts string
}

// addTo adds the flags.
func (s *sshFlags) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.identity, "identity-file", "", "file with the private key for an ssh:// URL; makes the Secret that --secret names (default: NAME-ssh)")
	f.StringVar(&s.password, "identity-password-file", "", "file with the password of an encrypted private key")
	f.StringVar(&s.knownHosts, "known-hosts-file", "", "file with the keys of the server, as ssh-keyscan prints them")
	cmd.MarkFlagsRequiredTogether("identity-file", "known-hosts-file")
}

// normalizeURL returns the URL that a spec states for what a user wrote.
func normalizeURL(spec *v1alpha1.RepositorySpec, text string) string {
	if url, isShort := changes.ConvertShortForm(text); isShort && spec.Git != nil {
		return url
	}
	return text
}

// newIdentity returns the Secret of the private key, and names it in the options; nil without files.
func (o *createOptions) newIdentity(url string) (*madeObject, error) {
	usesSSH := changes.Place{URL: url}.UsesSSH()
	switch {
	case o.ssh.identity == "" && o.ssh.password != "":
		return nil, errors.New("--identity-password-file: it is of a private key; give --identity-file too")
	case o.ssh.identity == "":
		return nil, nil
	case !usesSSH:
		return nil, errors.New("--identity-file: it is for an ssh:// URL")
	}
	text := map[string]string{}
	for key, file := range map[string]struct{ flag, name string }{
		"identity": {"--identity-file", o.ssh.identity}, "password": {"--identity-password-file", o.ssh.password}, "known_hosts": {"--known-hosts-file", o.ssh.knownHosts},
	} {
		if file.name == "" {
			continue
		}
		raw, err := readFlagFile(file.flag, file.name)
		if err != nil {
			return nil, err
		}
		if key == "password" {
			raw = bytes.TrimRight(raw, "\r\n")
		}
		text[key] = string(raw)
	}
	if o.secret == "" {
		o.secret = o.name + "-ssh"
	}
	return newHubSecret(o.secret, text, fmt.Sprintf("the private key of %s, and the host keys of %s", o.ssh.identity, o.ssh.knownHosts)), nil
}

// readFlagFile returns the content of the file that a flag names. An empty file is an error.
func readFlagFile(flag, name string) ([]byte, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, fmt.Errorf("%s: %s is empty", flag, name)
	}
	return raw, nil
}

// newHubSecret returns a Secret that is placed in no cluster.
func newHubSecret(name string, text map[string]string, about string) *madeObject {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{atoll.AnnotationClusters: ""}}, // no cluster
		StringData: text,
	}
	return &madeObject{client.Secrets, convertTyped(secret, "v1", "Secret"), about + "; stays on the hub"}
}

// checkExisting refuses a new Repository over SSH without a Secret, and options of a Repository for one that is there.
func (o *createOptions) checkExisting(repo *v1alpha1.Repository, url string) error {
	switch {
	case repo == nil && o.ssh.identity != "":
		return fmt.Errorf("the Repository %s is there, and has a Secret already: leave --identity-file out", o.repository)
	case repo == nil && o.tokenHost != "":
		return fmt.Errorf("the Repository %s is there, and states its token host: leave --token-host out", o.repository)
	case repo == nil && o.verify.isStated():
		return fmt.Errorf("the Repository %s is there, and states what must be signed: leave --verify and the trusted keys out", o.repository)
	case repo != nil && o.secret == "" && (changes.Place{URL: url}).UsesSSH():
		return errors.New("a repository over ssh needs --identity-file and --known-hosts-file, or --secret with a Secret that has identity and known_hosts")
	}
	return nil
}

// hiddenText stands for a value that is not printed.
const hiddenText = "(not shown)"

// hideSecretValues returns the fields of an object for printing: without the key and the password of a Secret.
func hideSecretValues(o *unstructured.Unstructured) map[string]any {
	if o.GetKind() != "Secret" {
		return o.Object
	}
	shown := o.DeepCopy()
	for _, key := range []string{"identity", "password"} {
		if _, has, err := unstructured.NestedString(shown.Object, "stringData", key); err == nil && has {
			if err := unstructured.SetNestedField(shown.Object, hiddenText, "stringData", key); err != nil {
				panic(fmt.Sprintf("source: a Secret has no stringData: %v", err))
			}
		}
	}
	return shown.Object
}
