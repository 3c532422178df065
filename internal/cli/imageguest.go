package cli

import (
	"context"
	"errors"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/kubernetes"
)

// guestImageOptions are the options of `fumehood image guest`.
type guestImageOptions struct{ push, save, tag, arch string }

func (a *commandLine) newImageGuestCommand() *cobra.Command {
	var o guestImageOptions
	cmd := &cobra.Command{
		Use:   "guest",
		Short: "Push or save the image from which a cluster's Pods get the guest",
		Long: `Guest makes the image with Fumehood's guest, for --guest-image of the kubernetes
provider. It must be of the same version as the fumehood that uses it.

With --push it pushes the image, for amd64 and arm64, with the credentials of
'docker login', and prints its reference with the digest. With --save it writes
an archive for one architecture, which 'docker load' and 'ctr images import'
accept, and prints the reference in it.`,
		Example: `  fumehood image guest --push registry.example.org/fumehood-guest:1
  fumehood image guest --save guest.tar --tag example.org/fumehood-guest:1`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (o.push == "") == (o.save == "") {
				return usageError("image guest needs --push or --save")
			}
			for _, flag := range []string{"tag", "arch"} {
				if o.save == "" && cmd.Flags().Changed(flag) {
					return usageError("--%s needs --save", flag)
				}
			}
			return a.makeGuestImage(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.push, "push", "", "push the image to a registry under this `name`")
	cmd.Flags().StringVar(&o.save, "save", "", "write an archive to this `file`, which must not exist")
	cmd.Flags().StringVar(&o.tag, "tag", "localhost/fumehood-guest:latest", "the `name` of the image in the archive")
	cmd.Flags().StringVar(&o.arch, "arch", runtime.GOARCH, "the `architecture` of the archive: amd64 or arm64")
	return cmd
}

func (a *commandLine) makeGuestImage(ctx context.Context, o guestImageOptions) error {
	if o.push != "" {
		ref, err := kubernetes.PushGuestImage(ctx, o.push)
		if err != nil {
			return err
		}
		return a.say("%s\n", ref)
	}
	out, err := os.OpenFile(o.save, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // the user names it
	if err != nil {
		return &fumehood.Error{Op: "save the guest's image", Class: fumehood.ErrConfig, Err: err}
	}
	err = errors.Join(kubernetes.WriteGuestImage(ctx, o.tag, o.arch, out), out.Close())
	if err != nil {
		return errors.Join(err, os.Remove(o.save))
	}
	return a.say("%s\n", o.tag)
}
