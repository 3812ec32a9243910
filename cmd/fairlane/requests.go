package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
)

// requestFlags are the flags of create that say how requests look. Secrets come from files: arguments
// can be read by every user of the machine.
type requestFlags struct {
	signature, beside    string
	secretFile, certFile string
	keyFile              string
	headers              []string
}

func (f *requestFlags) add(cmd *cobra.Command, in *api.NewSubscription) {
	fs := cmd.Flags()
	fs.StringVar(&f.signature, "signature", "", "standard, svix, or a template as JSON")
	fs.StringVar(&f.beside, "signature-beside", "", "a second one, during a migration; the same forms")
	fs.StringVar(&f.secretFile, "secret-file", "", "signing secrets, one a line; one is made if absent")
	fs.StringArrayVar(&f.headers, "header", nil, `custom header, "Name: value", or @FILE of such lines; may be repeated`)
	fs.StringArrayVar(&in.OptionalHeaders, "optional-header", nil, "ratelimit, cloudevents or position; may be repeated")
	fs.StringVar(&in.Envelope, "envelope", "", "raw, cloudevents, or one of the configuration")
	fs.StringVar(&f.certFile, "client-cert", "", "certificate to show to the endpoint, PEM file")
	fs.StringVar(&f.keyFile, "client-key", "", "its private key, PEM file")
}

// fill puts what the flags say into in.
func (f *requestFlags) fill(in *api.NewSubscription) (err error) {
	if in.Signature, err = signatureJSON("signature", f.signature); err != nil {
		return err
	}
	if in.SignatureBeside, err = signatureJSON("signature-beside", f.beside); err != nil {
		return err
	}
	if f.secretFile != "" {
		if in.Secrets, err = linesOf(f.secretFile); err != nil {
			return err
		}
	}
	if in.Headers, err = headerMap(f.headers); err != nil {
		return err
	}
	return f.fillCertificate(in)
}

func (f *requestFlags) fillCertificate(in *api.NewSubscription) error {
	if (f.certFile == "") != (f.keyFile == "") {
		return usageError{fmt.Errorf("--client-cert and --client-key belong together")}
	}
	if f.certFile == "" {
		return nil
	}
	cert, err := os.ReadFile(f.certFile)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(f.keyFile)
	if err != nil {
		return err
	}
	in.ClientCertificate = map[string]string{"certificate": string(cert), "key": string(key)}
	return nil
}

// signatureJSON takes the name of a profile, or an object as it is.
func signatureJSON(flag, text string) (json.RawMessage, error) {
	switch {
	case text == "":
		return nil, nil
	case !strings.HasPrefix(text, "{"):
		return json.Marshal(map[string]string{"profile": text})
	case !json.Valid([]byte(text)):
		return nil, usageError{fmt.Errorf("--%s is neither a profile's name nor JSON", flag)}
	}
	return json.RawMessage(text), nil
}

// linesOf returns the lines of a file that are not empty.
func linesOf(file string) (list []string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			list = append(list, line)
		}
	}
	return list, nil
}

func headerMap(flags []string) (map[string]string, error) {
	var lines []string
	for _, h := range flags {
		file, isFile := strings.CutPrefix(h, "@")
		if !isFile {
			lines = append(lines, h)
			continue
		}
		more, err := linesOf(file)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	m := map[string]string{}
	for i, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if _, twice := m[name]; !ok || twice {
			return nil, usageError{fmt.Errorf(`--header: field %d must be "Name: value", each name once`, i+1)}
		}
		m[name] = strings.TrimSpace(value)
	}
	return m, nil
}

func newSubscriptionRotateCmd(c *client) *cobra.Command {
	var in api.Rotation
	cmd := &cobra.Command{
		Use:     "rotate ID",
		Short:   "Make a new signing secret; the old ones sign beside it until the overlap ends",
		Example: "  fairlane subscription rotate sub_yoklpns7ygelr7jonaor --overlap 48h",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(c, cmd, func(ctx context.Context, a *api.Client) (api.Subscription, error) {
				return a.RotateSecret(ctx, args[0], in)
			}, rotatedText)
		},
	}
	cmd.Flags().StringVar(&in.Kind, "kind", "", "v1, a shared secret, or v1a, a key pair; v1 if absent")
	cmd.Flags().StringVar(&in.Overlap, "overlap", "", "how long the old ones go on signing; 24h if absent, 0s is not at all")
	return cmd
}

func rotatedText(s api.Subscription) string {
	text := "rotated " + s.ID
	if s.Secret != "" {
		text += "\nsecret  " + s.Secret + "  (not shown again)"
	}
	for _, k := range s.PublicKeys {
		text += "\npublic  " + k
	}
	if s.OverlapUntil != nil {
		text += "\noverlap until " + s.OverlapUntil.Format(time.RFC3339)
	}
	return text
}
