package inputfile

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/windows"
)

const noWait = 0

func awaitWriter(*os.File) error { return nil }

// All users may create files below C:\ProgramData, which replaces none.
const (
	mayChange  = windows.FILE_WRITE_DATA | windows.FILE_APPEND_DATA | mayReplace
	mayReplace = windows.DELETE | windows.WRITE_DAC | windows.WRITE_OWNER | windows.GENERIC_WRITE |
		windows.GENERIC_ALL | fileDeleteChild
	mayRead = windows.FILE_READ_DATA | windows.GENERIC_READ | mayChange

	fileDeleteChild = 0x40
)

// judge judges by owner and access list: an owner may change the list.
func judge(at string, _ fs.FileMode, owners []int) error {
	info, err := os.Lstat(at)
	if err != nil {
		return err
	}
	rights := windows.ACCESS_MASK(mayChange)
	if !info.Mode().IsRegular() {
		rights = mayReplace
	}
	by, err := otherUser(at, rights, owners != nil)
	if err == nil && by != "" {
		err = fmt.Errorf(`%s: user %s can change it, which %w: icacls "%s" /setowner *%s, then /inheritance:r `+
			`/grant *%s:F *%s:F`, at, by, ErrUnsafe, at, administrators, administrators, system)
	}
	return err
}

// ReadableByOthers returns an error, with the command to fix it, if not only the system, administrators and this
// process's user can read a file.
func ReadableByOthers(path string) error {
	by, err := otherUser(path, mayRead, false)
	if err == nil && by != "" {
		err = fmt.Errorf(`%s: user %s can read it: icacls "%s" /inheritance:r /grant *%s:F *%s:F`, path, by, path,
			administrators, system)
	}
	return err
}

const (
	system           = "S-1-5-18"
	administrators   = "S-1-5-32-544"
	trustedInstaller = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"
	creatorOwner     = "S-1-3-0"
	ownerRights      = "S-1-3-4"
)

// otherUser returns a user that has one of the rights, or owns the file; "" for none.
func otherUser(path string, rights windows.ACCESS_MASK, judgeOwner bool) (string, error) {
	const wanted = windows.OWNER_SECURITY_INFORMATION | windows.DACL_SECURITY_INFORMATION
	sd, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, wanted)
	if err != nil {
		return "", &fs.PathError{Op: "read access list", Path: path, Err: err}
	}
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return "", err
	}
	trusted := []string{system, administrators, trustedInstaller, creatorOwner, ownerRights, user.User.Sid.String()}
	owner, _, err := sd.Owner()
	if err == nil && judgeOwner && owner != nil && !slices.Contains(trusted, owner.String()) {
		return owner.String(), nil
	}
	list, _, err := sd.DACL()
	if err != nil {
		return "", &fs.PathError{Op: "read access list", Path: path, Err: err}
	}
	if list == nil {
		return "S-1-1-0", nil // everyone
	}
	for i := range uint32(list.AceCount) {
		var ace *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(list, i, &ace); err != nil {
			return "", err
		}
		allows := ace.Header.AceType == windows.ACCESS_ALLOWED_ACE_TYPE &&
			ace.Header.AceFlags&windows.INHERIT_ONLY_ACE == 0
		sid := (*windows.SID)(unsafe.Pointer(&ace.SidStart)).String() //nolint:gosec // entries end with it
		if allows && ace.Mask&rights != 0 && !slices.Contains(trusted, sid) {
			return sid, nil
		}
	}
	return "", nil
}

// FromRoot reports false.
func FromRoot(fs.FileInfo) bool { return false }
