/** The nonce of this page, for the parts that must add a style sheet of their own. */
export const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content || undefined;
