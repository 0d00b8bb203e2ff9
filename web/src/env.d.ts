declare module "virtual:messages/*" {
  const messages: Record<string, Record<string, unknown>>;
  export default messages;
}
